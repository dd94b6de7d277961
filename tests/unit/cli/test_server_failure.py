"""How a server ends that cannot go on, or is told twice to end."""

from __future__ import annotations

import signal
from pathlib import Path

from roquet.errors import FlushFailed
from roquet.remoting.codes import ResponseCode
from tests.unit.cli.server_kit import END_TIMEOUT_S, FREE_PORTS, server, started
from tests.unit.cli.wire_kit import pull_all, send_all, send_code

BROKEN_DISK = """
import errno, pathlib
from roquet.runtime import files

whole = files.Files.data_sync

def data_sync(self, fd):
    if pathlib.Path("broken").exists():
        raise OSError(errno.EIO, "Input/output error")
    whole(self, fd)

files.Files.data_sync = data_sync
"""

SLOW_STOP = """
import asyncio
from roquet.namesrv import namesrv

async def stop(self):
    print("stopping", flush=True)
    await asyncio.Event().wait()

namesrv.Namesrv.stop = stop
"""


def test_a_disk_that_fails_ends_the_broker(tmp_path: Path) -> None:
    flags = (*FREE_PORTS, "--sync-flush")
    with server("dev", *flags, home=tmp_path, prelude=BROKEN_DISK) as running:
        broker, _ = started(running)
        send_all(broker, b"before")
        (tmp_path / "broken").touch()
        assert send_code(broker, b"after") != ResponseCode.SUCCESS
        code, out, err = running.ended()
    assert (code, out) == (FlushFailed.exit_code, "")
    assert '"code":"flush_failed"' in err
    assert "Input/output error" in err
    assert "Traceback" not in err
    assert (tmp_path / "roquet-data" / "store" / "abort").exists()
    (tmp_path / "broken").unlink()
    with server("dev", *FREE_PORTS, home=tmp_path) as running:
        broker, _ = started(running)
        assert pull_all(broker)[:1] == [b"before"]
        assert running.stop()[0] == 0


def test_a_second_signal_ends_a_stop_that_hangs(tmp_path: Path) -> None:
    flags = ("--port", "0", "--json")
    with server("namesrv", *flags, home=tmp_path, prelude=SLOW_STOP) as running:
        running.facts()
        running.process.send_signal(signal.SIGINT)
        assert running.first_line() == "stopping\n"
        code, _, _ = running.stop(signal.SIGTERM)
    assert code == 128 + signal.SIGTERM


def test_a_reader_that_goes_is_no_reason_to_fail(tmp_path: Path) -> None:
    with server("namesrv", "--port", "0", home=tmp_path) as running:
        running.first_line()
        assert running.process.stdout is not None
        running.process.stdout.close()
        running.process.terminate()
        assert running.process.wait(END_TIMEOUT_S) == 0


def test_a_signal_while_starting_is_a_clean_stop(tmp_path: Path) -> None:
    slow_start = """
import os, signal
from roquet.store import default_message_store as store

whole = store.DefaultMessageStore.load

def load(self):
    os.kill(os.getpid(), signal.SIGTERM)
    return whole(self)

store.DefaultMessageStore.load = load
"""
    with server("dev", *FREE_PORTS, home=tmp_path, prelude=slow_start) as running:
        running.facts()
        code, out, err = running.ended()
    assert (code, out, err) == (0, "", "")
    assert not (tmp_path / "roquet-data" / "store" / "abort").exists()
