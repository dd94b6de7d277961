"""How a server exits that cannot continue, or gets two signals."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from roquet.errors import FlushFailed, NotAStore
from roquet.remoting.codes import ResponseCode
from tests.integration.cli.server_kit import (
    END_TIMEOUT_S,
    FREE_PORTS,
    server,
    server_on_terminal,
    started,
)
from tests.integration.cli.wire_kit import pull_all, send_all, send_code

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


def test_an_unmounted_disk_is_not_taken_for_a_new_store(tmp_path: Path) -> None:
    mount_point = tmp_path / "mnt"
    mount_point.mkdir()
    settings = tmp_path / "broker.conf"
    settings.write_text(f"storePathRootDir={mount_point}\nlistenPort=0\n", "utf-8")
    with server("broker", "-c", str(settings), "--expect-store", home=tmp_path) as running:
        code, out, err = running.ended()
    assert (code, out) == (NotAStore.exit_code, "")
    assert f"There is no store in {mount_point}" in err
    assert not list(mount_point.iterdir())


def test_a_second_signal_ends_a_hanging_shutdown(tmp_path: Path) -> None:
    flags = ("--port", "0", "--json")
    with server("namesrv", *flags, home=tmp_path, prelude=SLOW_STOP) as running:
        running.facts()
        running.process.send_signal(signal.SIGINT)
        assert running.first_line() == "stopping\n"
        code, _, _ = running.stop(signal.SIGTERM)
    assert code == 128 + signal.SIGTERM


def test_a_closed_output_pipe_is_no_failure(tmp_path: Path) -> None:
    with server("namesrv", "--port", "0", home=tmp_path) as running:
        running.first_line()
        assert running.process.stdout is not None
        running.process.stdout.close()
        running.process.terminate()
        assert running.process.wait(END_TIMEOUT_S) == 0


def read_until(terminal: int, words: bytes) -> None:
    seen = b""
    while words not in seen:
        seen += os.read(terminal, 4096)


def test_a_hang_up_without_a_terminal_is_logged_and_changes_nothing(tmp_path: Path) -> None:
    with server("namesrv", "--port", "0", "--json", home=tmp_path) as running:
        running.facts()
        running.process.send_signal(signal.SIGHUP)
        code, _, err = running.stop()
    assert code == 0, "a second stop signal would end it at once"
    assert "SIGHUP is ignored" in err


def test_closing_the_terminal_is_a_clean_shutdown(tmp_path: Path) -> None:
    flags = ("dev", "--port", "0", "--namesrv-port", "0", "--log-level", "info")
    with server_on_terminal(*flags, home=tmp_path) as (process, terminal):
        read_until(terminal, b"stop with")
        os.close(terminal)
        assert process.wait(END_TIMEOUT_S) == 0
    assert not (tmp_path / "roquet-data" / "store" / "abort").exists()


def test_nohup_is_respected(tmp_path: Path) -> None:
    prelude = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    flags = ("namesrv", "--port", "0")
    with server_on_terminal(*flags, home=tmp_path, prelude=prelude) as (process, terminal):
        read_until(terminal, b"boot success")
        os.close(terminal)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_TIMEOUT_S) == 0


def test_a_signal_during_startup_is_a_clean_shutdown(tmp_path: Path) -> None:
    slow_start = """
import os, signal
from roquet.store.lifecycle import StoreLifecycle

whole = StoreLifecycle.load

def load(self):
    os.kill(os.getpid(), signal.SIGTERM)
    return whole(self)

StoreLifecycle.load = load
"""
    with server("dev", *FREE_PORTS, home=tmp_path, prelude=slow_start) as running:
        running.facts()
        code, out, err = running.ended()
    assert (code, out, err) == (0, "", "")
    assert not (tmp_path / "roquet-data" / "store" / "abort").exists()


def test_a_bus_error_leaves_a_traceback(tmp_path: Path) -> None:
    with server("namesrv", "--port", "0", "--json", home=tmp_path) as running:
        running.facts()
        code, _, err = running.stop(signal.SIGBUS)
    assert code == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in err
