"""Hadoop on loopback, by its own daemons: HDFS with one DataNode, and YARN with one NodeManager."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tests.interop import javabuild
from tests.interop.process import ChildProcess, find_free_port
from tests.spark.conftest import QUICK_START

PROJECT = javabuild.HERE / "hadoop"
VERSION = "3.4.2"
LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 60

_LOG4J = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c: %m%n
"""


@dataclass(frozen=True)
class Hadoop:
    """A cluster that runs.

    Attributes:
        lakes: The address of HDFS.
        conf: What HADOOP_CONF_DIR names.
        data: Where containers run.
    """

    lakes: str
    conf: Path
    data: Path


@contextmanager
def hadoop(folder: Path, *, has_yarn: bool = True) -> Iterator[Hadoop]:
    """Start a cluster, and end it.

    Raises:
        OracleMissingError: Java, Maven or the network is missing.
    """
    toolkit = javabuild.build(PROJECT, VERSION)
    conf, data = folder / "conf", folder / "data"
    conf.mkdir(parents=True)
    port = find_free_port()
    address = f"hdfs://{LOOPBACK}:{port}"
    _write_conf(conf, data, address)
    (conf / "log4j.properties").write_text(_LOG4J)
    environment = _environment(conf)

    def command(name: str, *arguments: str) -> list[str]:
        flags = [*QUICK_START.split(), "-Xmx256m", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
        classpath = os.pathsep.join([str(conf), toolkit.classpath])
        return [toolkit.java, *flags, "-cp", classpath, f"org.apache.hadoop.{name}", *arguments]

    def daemon(name: str) -> ChildProcess:
        short = name.rpartition(".")[2]
        return ChildProcess(short, command(name), folder=folder, environment=environment)

    subprocess.run(
        command("hdfs.server.namenode.NameNode", "-format", "-nonInteractive"),
        env=environment,
        check=True,
        capture_output=True,
        timeout=START_TIMEOUT_S,
    )
    with ExitStack() as stack:
        names = stack.enter_context(daemon("hdfs.server.namenode.NameNode"))
        blocks = stack.enter_context(daemon("hdfs.server.datanode.DataNode"))
        if has_yarn:
            resources = "yarn.server.resourcemanager.ResourceManager"
            managers = [stack.enter_context(daemon(resources))]
            managers.append(stack.enter_context(daemon("yarn.server.nodemanager.NodeManager")))
        blocks.wait_log("successfully registered with NN", START_TIMEOUT_S)
        names.wait_log("Adding new storage ID", START_TIMEOUT_S)
        if has_yarn:
            managers[1].wait_log("Registered with ResourceManager", START_TIMEOUT_S)
        yield Hadoop(address, conf, data)


def _environment(conf: Path) -> Mapping[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    java = shutil.which("java")
    assert java is not None
    home = os.environ.get("JAVA_HOME") or str(Path(java).resolve().parents[1])
    return {**kept, "JAVA_HOME": home, "HADOOP_CONF_DIR": str(conf), "USER": "root"}


def _write_conf(conf: Path, data: Path, address: str) -> None:
    free = f"{LOOPBACK}:0"
    _write(conf / "core-site.xml", {"fs.defaultFS": address, "hadoop.tmp.dir": str(data / "tmp")})
    hdfs = {
        "dfs.namenode.name.dir": f"file://{data}/names",
        "dfs.datanode.data.dir": f"file://{data}/blocks",
        "dfs.replication": "1",
        "dfs.namenode.http-address": free,
        "dfs.datanode.address": free,
        "dfs.datanode.http.address": free,
        "dfs.datanode.ipc.address": free,
        "dfs.datanode.hostname": LOOPBACK,
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.safemode.extension": "0",
    }
    _write(conf / "hdfs-site.xml", hdfs)
    manager = "yarn.resourcemanager"
    names = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
    yarn = {f"{manager}.{name}": f"{LOOPBACK}:{find_free_port()}" for name in names} | {
        f"{manager}.hostname": LOOPBACK,
        f"{manager}.webapp.address": free,
        "yarn.nodemanager.hostname": LOOPBACK,
        "yarn.nodemanager.address": free,
        "yarn.nodemanager.localizer.address": free,
        "yarn.nodemanager.webapp.address": free,
        "yarn.nodemanager.collector-service.address": free,
        "yarn.nodemanager.local-dirs": str(data / "local"),
        "yarn.nodemanager.log-dirs": str(data / "logs"),
        "yarn.nodemanager.resource.memory-mb": "3072",
        "yarn.nodemanager.resource.cpu-vcores": "8",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        "yarn.scheduler.minimum-allocation-mb": "128",
    }
    _write(conf / "yarn-site.xml", yarn)
    _write(
        conf / "capacity-scheduler.xml",
        {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": "100",
            "yarn.scheduler.capacity.maximum-am-resource-percent": "0.9",
        },
    )


def _write(path: Path, values: Mapping[str, str]) -> None:
    rows = (
        f"  <property><name>{name}</name><value>{escape(value)}</value></property>"
        for name, value in values.items()
    )
    path.write_text("\n".join(["<configuration>", *rows, "</configuration>", ""]))
