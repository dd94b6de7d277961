"""What Spark asks Kubernetes for, with the settings of the guide; a stub takes the API's place."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
VOLUME = "spark.kubernetes.executor.volumes.persistentVolumeClaim.stores"
CONF = {
    "spark.kubernetes.authenticate.oauthToken": "none",
    "spark.kubernetes.container.image": "registry.example/roquet-spark:1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.instances": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "1s",
    "spark.executor.memory": "2g",
    "spark.executor.memoryOverhead": "1g",
    f"{VOLUME}.mount.path": "/stores",
    f"{VOLUME}.mount.readOnly": "true",
    f"{VOLUME}.options.claimName": "stores",
    "spark.kubernetes.executor.secretKeyRef.AWS_ACCESS_KEY_ID": "lake:key",
}
PROGRAM = """
import json, sys
from roquet.spark.session import open_session
with open_session(app_name="pods", master=sys.argv[1], conf=json.loads(sys.argv[2])) as spark:
    print(spark.conf.get("spark.archives"), flush=True)
    sys.stdin.read()
"""


class Api(ThreadingHTTPServer):
    """As much of the API as Spark asks for while no pod ever starts."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pods: list[dict[str, Any]] = []
        self.has_pod = threading.Event()
        self.is_over = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Api

    def _answer(self, code: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if "watch=true" in self.path and "Upgrade" not in self.headers:
            self._watch()
            return
        meta = {"resourceVersion": "1"}
        self._answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": []})

    def _watch(self) -> None:
        """Give news of pods, of which there are none; web sockets are not known here."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.server.is_over.wait()

    def do_POST(self) -> None:
        made = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        made["metadata"] |= {"uid": "1", "namespace": "default", "resourceVersion": "2"}
        self._answer(201, made)
        if self.path.endswith("/pods"):
            self.server.pods.append(made)
            self.server.has_pod.set()

    def do_DELETE(self) -> None:
        self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.is_over.set()
        server.shutdown()
        thread.join()


def test_pods_are_as_the_guide_says(api: Api) -> None:
    guide = (ROOT / "docs" / "guides" / "spark-cluster.md").read_text("utf-8")
    assert [key for key in CONF if "kubernetes.executor" in key and key not in guide] == []
    master = f"k8s://http://127.0.0.1:{api.server_address[1]}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    driver = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, master, json.dumps(CONF)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline().strip().endswith(".tar.gz#roquet_packages")
        assert api.has_pod.wait(120)
    finally:
        driver.communicate("")
    pod = api.pods[0]["spec"]
    (container,) = pod["containers"]
    env = {each["name"]: each for each in container["env"]}
    assert container["image"] == CONF["spark.kubernetes.container.image"]
    assert env["PYTHONPATH"]["value"] == "./roquet_packages"
    assert env["SPARK_DRIVER_URL"]["value"].startswith("spark://CoarseGrainedScheduler@127.0.0.1:")
    assert env["AWS_ACCESS_KEY_ID"]["valueFrom"]["secretKeyRef"] == {"key": "key", "name": "lake"}
    assert container["resources"]["limits"]["memory"] == "3072Mi"
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["stores"]["persistentVolumeClaim"] == {"claimName": "stores", "readOnly": True}
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    assert (mounts["stores"]["mountPath"], mounts["stores"]["readOnly"]) == ("/stores", True)
