"""What is sent to executors can be imported there, with nothing else of Roquet at hand."""

import subprocess
import sys
import tarfile
from pathlib import Path

from roquet.spark.packaging import FOLDER, executor_conf, pack


def test_the_archive_has_what_readers_import_and_no_servers(tmp_path: Path) -> None:
    archive = pack(tmp_path / "packages.tar.gz")
    with tarfile.open(archive) as packed:
        names = packed.getnames()
        packed.extractall(tmp_path / FOLDER, filter="data")
    assert "roquet/spark/options.py" in names
    assert {f"pyspark_rocketmq{end}/__init__.py" for end in ("", "_log", "_lake")} <= set(names)
    assert not [name for name in names if name.startswith(("roquet/broker/", "roquet/cli/"))]
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyx")]
    code = (
        "import roquet.spark.options, roquet.spark.schema, roquet.client, msgspec;"
        "print(roquet.__file__, msgspec.__file__)"
    )
    printed = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {FOLDER!r}); {code}"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert printed.count(FOLDER) == 2


def test_the_settings_name_the_archive(tmp_path: Path) -> None:
    for master, setting in (
        ("spark://host:7077", "spark.archives"),
        ("k8s://https://127.0.0.1:6443", "spark.archives"),
        ("yarn", "spark.yarn.dist.archives"),
    ):
        conf = executor_conf(tmp_path / "p.tar.gz", master)
        assert conf[setting].endswith(f"p.tar.gz#{FOLDER}")
    assert conf["spark.executorEnv.PYTHONPATH"] == f"./{FOLDER}"
