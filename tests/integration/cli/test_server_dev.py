"""``roquet dev`` and ``roquet broker`` as real processes: start, stop, crash, refusal."""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from roquet.model.properties_text import parse_properties
from roquet.remoting.codes import ResponseCode
from roquet.runtime.clock import SystemClock
from roquet.runtime.files import Files
from roquet.store.config import SMALL_SEGMENTS
from roquet.store.inspect.info import gather_info
from roquet.storefiles.view import StoreView
from tests.integration.cli.server_kit import FREE_PORTS, run, server, started
from tests.integration.cli.wire_kit import TOPIC, pull_all, route_code, send_all

FRESH_BYTES_MAX = 200_000_000


def state(store: Path) -> str:
    with StoreView(Files(), store) as view:
        return gather_info(view, SystemClock()).state


def used_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # a table is renamed when it is written
            total += path.stat().st_blocks * 512
    return total


# -- dev ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_dev_serves_and_leaves_a_clean_store(tmp_path: Path, number: signal.Signals) -> None:
    with server("dev", *FREE_PORTS, home=tmp_path) as running:
        broker, facts = started(running)
        assert facts["dataFolder"] == str(tmp_path / "roquet-data")
        assert facts["broker"]["namesrvAddr"] == facts["namesrv"]["address"]
        assert facts["broker"]["listensOn"].startswith("127.0.0.1:")
        assert facts["broker"]["durability"]["flushDiskType"] == "ASYNC_FLUSH"
        for files in (facts["broker"]["openFiles"], facts["namesrv"]["openFiles"]):
            assert files["softLimit"] == files["hardLimit"] > files["maxConnections"]
        assert facts["nextCommands"]
        send_all(broker, b"one", b"two")
        assert pull_all(broker) == [b"one", b"two"]
        assert route_code(facts["namesrv"]["address"], TOPIC) == ResponseCode.SUCCESS
        store = tmp_path / "roquet-data" / "store"
        assert state(store) == "running"
        assert used_bytes(tmp_path / "roquet-data") < FRESH_BYTES_MAX
        code, out, err = running.stop(number)
    assert (code, out, err) == (0, "", "")
    assert state(store) == "clean"
    assert not (store / "abort").exists()


def test_dev_prints_a_readable_banner(tmp_path: Path) -> None:
    flags = ("--port", "0", "--namesrv-port", "0", "--sync-flush")
    with server("dev", "data", *flags, home=tmp_path) as running:
        assert "is ready" in running.first_line()
        code, out, err = running.stop()
    assert (code, err) == (0, "")
    assert "SYNC_FLUSH" in out
    assert str(tmp_path / "data" / "store") in out
    assert "roquet send Orders" in out
    assert "roquet store dump" in out
    assert out.endswith("Stopped; the store is clean.\n")


def test_every_acknowledged_message_survives_a_crash(tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(20)]
    with server("dev", *FREE_PORTS, home=tmp_path) as running:
        broker, _ = started(running)
        send_all(broker, *bodies)
        running.process.kill()
        running.process.wait()
    assert state(tmp_path / "roquet-data" / "store") == "crashed"
    with server("dev", *FREE_PORTS, home=tmp_path) as running:
        broker, _ = started(running)
        assert pull_all(broker) == bodies
        send_all(broker, b"more")
        assert pull_all(broker) == [*bodies, b"more"]
        assert running.stop()[0] == 0
    assert state(tmp_path / "roquet-data" / "store") == "clean"


@pytest.mark.parametrize(
    ("prelude", "environment"),
    [
        pytest.param("import sys; sys.modules['uvloop'] = None", {}, id="plain asyncio"),
        pytest.param("", {"ROQUET_PURE": "1"}, id="plain Python"),
    ],
)
def test_dev_runs_without_uvloop_or_compiled_code(
    tmp_path: Path, prelude: str, environment: dict[str, str]
) -> None:
    with server(
        "dev", *FREE_PORTS, home=tmp_path, prelude=prelude, environment=environment
    ) as running:
        broker, facts = started(running)
        if "ROQUET_PURE" in environment:
            assert facts["broker"]["hotPath"] == "reference path, slower: ROQUET_PURE is set"
        send_all(broker, b"one")
        assert pull_all(broker) == [b"one"]
        assert running.stop() == (0, "", "")


def test_a_second_start_on_the_same_store_is_refused(tmp_path: Path) -> None:
    with server("dev", *FREE_PORTS, home=tmp_path) as running:
        started(running)
        done = run("dev", *FREE_PORTS, home=tmp_path)
        by_broker = run("broker", "-c", "b.conf", home=with_store(tmp_path, "roquet-data/store"))
        assert running.stop()[0] == 0
    assert (done.returncode, done.stdout) == (1, "")
    error = json.loads(done.stderr)["error"]
    assert error["code"] == "store_locked"
    assert error["detail"] == f"process {running.process.pid} holds the lock"
    assert by_broker.returncode == 1
    assert f"process {running.process.pid} holds the lock" in by_broker.stderr


def with_store(home: Path, store: str) -> Path:
    (home / "b.conf").write_text(f"storePathRootDir={home / store}\nlistenPort=0\n")
    return home


def test_a_port_in_use_is_reported_with_the_flags_that_help(tmp_path: Path) -> None:
    with server("namesrv", "--port", "0", "--json", home=tmp_path) as other:
        port = other.facts()["port"]
        done = run("dev", "--port", "0", "--namesrv-port", str(port), home=tmp_path)
        other.stop()
    assert done.returncode == 2
    assert f"Cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "--namesrv-port 0 --port 0" in done.stderr
    assert not (tmp_path / "roquet-data" / "store" / "abort").exists()


def test_small_segments_take_the_longest_message() -> None:
    assert SMALL_SEGMENTS.max_record_bytes < SMALL_SEGMENTS.commit_log_file_bytes


# -- broker and name server apart ---------------------------------------------------------------


def test_a_broker_registers_and_unregisters(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text(
        f"storePathRootDir={tmp_path / 'store'}\nlistenPort=0\nbrokerName=b1\n"
        "mappedFileSizeCommitLog=16777216\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"
        "flushDiskType=SYNC_FLUSH\nclusterTopicEnable=false\nsendMessageThreadPoolNums=4\n"
    )
    with (
        server("namesrv", "--port", "0", "--json", home=tmp_path) as names,
        server(
            "broker",
            "-c",
            "broker.conf",
            "--json",
            home=tmp_path,
            environment={"NAMESRV_ADDR": names.facts()["address"]},
        ) as running,
    ):
        facts = running.facts()
        assert (facts["brokerName"], facts["brokerId"]) == ("b1", 0)
        assert facts["durability"]["flushDiskType"] == "SYNC_FLUSH"
        assert facts["fastPort"] not in {0, facts["port"]}
        assert facts["haPort"] not in {0, facts["port"], facts["fastPort"]}
        namesrv = facts["namesrvAddr"]
        assert route_code(namesrv, "b1") == ResponseCode.SUCCESS
        send_all(facts["address"], b"x")
        assert pull_all(facts["address"]) == [b"x"]
        code, _, err = running.stop()
        assert code == 0
        assert "These settings have no effect here: sendMessageThreadPoolNums" in err
        assert route_code(namesrv, "b1") == ResponseCode.TOPIC_NOT_EXIST
        assert names.stop()[0] == 0
    assert state(tmp_path / "store") == "clean"


def test_a_broker_prints_upstreams_ready_line(tmp_path: Path) -> None:
    with server("broker", "-c", "b.conf", home=with_store(tmp_path, "store")) as running:
        line = running.first_line()
        assert line.startswith("The broker[")
        assert "boot success. serializeType=JSON" in line
        code, out, err = running.stop()
    assert code == 0
    assert out.endswith("The broker stopped; its store is clean.\n")
    assert "use -n" in err


def test_printed_settings_start_the_same_broker(tmp_path: Path) -> None:
    home = with_store(tmp_path, "store")
    done = run("broker", "-c", "b.conf", "-p", home=home)
    assert done.returncode == 0
    assert parse_properties(done.stdout)["storePathRootDir"] == str(tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    done = run("broker", "-c", "b.conf", home=with_store(tmp_path, "store"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "store") in done.stderr
