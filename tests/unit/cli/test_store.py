"""``roquet store``: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from roquet.cli.main import roquet
from roquet.runtime.clock import ManualClock
from tests.unit.store.lock_holder import lock_held
from tests.unit.store.synthetic import NOW_MS, SyntheticStore, flip_bit

SEGMENT_BYTES = 2048
COMMANDS = ("info", "dump", "verify")


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roquet.cli.store.SystemClock", lambda: ManualClock(NOW_MS))


@pytest.fixture
def store(tmp_path: Path) -> SyntheticStore:
    made = SyntheticStore(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    for number in range(30):
        made.put(
            "Orders" if number % 3 else "Parts",
            number % 2,
            f"body {number}".encode(),
            tags=f"Tag{number % 4}",
            keys=f"k{number} group{number % 5}",
            unique_key=f"7F0000010001{number:020X}",
        )
    made.write()
    return made


def run(*arguments: object) -> Result:
    return CliRunner().invoke(roquet, ["store", *map(str, arguments)], catch_exceptions=False)


def content(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(root).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


# -- sound stores -------------------------------------------------------------------------------


def test_readers_change_nothing(store: SyntheticStore) -> None:
    (store.root / "abort").write_text("1")
    before = content(store.root)
    for command in COMMANDS:
        assert run(command, store.root).exit_code == 0
        assert run(command, store.root, "--json").exit_code == 0
    assert content(store.root) == before
    assert sorted(p.name for p in store.root.iterdir()) == [
        "abort",
        "checkpoint",
        "commitlog",
        "config",
        "consumequeue",
        "index",
        "lock",
    ]


def test_info(store: SyntheticStore) -> None:
    result = run("info", store.root)
    assert result.exit_code == 0
    assert result.stderr == ""
    for text in (
        "State        clean",
        f"0 to {store.log_end}",
        "Orders",
        "Checkpoint",
        "topics.json",
    ):
        assert text in result.stdout
    found = json.loads(run("info", store.root, "--json").stdout)
    assert found["schema"] == 1
    assert found["state"] == "clean"
    assert found["maxPhysicalOffset"] == store.log_end
    assert {queue["topic"] for queue in found["queues"]} == {"Orders", "Parts"}
    assert found["segments"][0]["firstStoreTimestamp"] == store.placed[0].store_timestamp_ms


def test_info_of_a_running_store(store: SyntheticStore) -> None:
    with lock_held(store.root) as holder:
        assert f"State        running, open in process {holder}" in run("info", store.root).stdout
        assert json.loads(run("info", store.root, "--json").stdout)["lockHolder"] == holder
        assert run("verify", store.root).exit_code == 0


def test_info_of_a_crashed_store(store: SyntheticStore) -> None:
    (store.root / "abort").write_text("1")
    assert "State        crashed" in run("info", store.root).stdout


def test_dump(store: SyntheticStore) -> None:
    result = run("dump", store.root, "--topic", "Parts", "--limit", 2)
    assert result.exit_code == 0
    assert "Parts-0 offset 0" in result.stdout
    assert "KEYS=k0 group0" in result.stdout
    assert "body (utf-8): 'body 0'" in result.stdout
    assert result.stdout.count("Parts-") == 2
    lines = run("dump", store.root, "--json").stdout.splitlines()
    assert [json.loads(line)["physicalOffset"] for line in lines] == [
        placed.physical_offset for placed in store.placed
    ]
    assert set(json.loads(lines[0])) == {
        "topic",
        "queueId",
        "queueOffset",
        "physicalOffset",
        "storeSize",
        "bornTimestamp",
        "storeTimestamp",
        "bornHost",
        "storeHost",
        "tags",
        "keys",
        "properties",
        "msgId",
        "offsetMsgId",
        "sysFlag",
        "flag",
        "bodyCrc",
        "reconsumeTimes",
        "preparedTransactionOffset",
        "body",
        "bodyEncoding",
    }


def dumped(store: SyntheticStore, *options: object) -> list[int]:
    result = run("dump", store.root, "--json", *options)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line)["physicalOffset"] for line in result.stdout.splitlines()]


def test_dump_options(store: SyntheticStore) -> None:
    placed = store.placed
    assert dumped(store, "--topic", "Orders", "--topic", "Parts", "--queue", 1) == [
        p.physical_offset for p in placed if p.queue_id == 1
    ]
    assert dumped(
        store, "--topic", "Orders", "--queue", 1, "--from-offset", 2, "--to-offset", 3
    ) == [
        p.physical_offset
        for p in placed
        if (p.topic, p.queue_id) == ("Orders", 1) and p.queue_offset in {2, 3}
    ]
    low, high = placed[5], placed[9]
    expected = [p.physical_offset for p in placed[5:10]]
    assert expected == dumped(
        store, "--physical-from", low.physical_offset, "--physical-to", high.physical_offset
    )
    assert expected == dumped(
        store, "--from", low.store_timestamp_ms, "--to", high.store_timestamp_ms
    )
    assert expected == dumped(
        store, "--from", "2023-11-14T22:13:24.200+00:00", "--to", "2023-11-14T22:13:27Z"
    )
    assert dumped(store, "--topic", "Orders", "--key", "k7") == [placed[7].physical_offset]
    assert dumped(store, "--limit", 3) == [p.physical_offset for p in placed[:3]]


@pytest.mark.parametrize(
    "options",
    [("--from", "yesterday"), ("--queue", "-1"), ("--limit", "many"), ("--from", "9999999-01-01")],
)
def test_nonsensical_dump_options(store: SyntheticStore, options: tuple[str, str]) -> None:
    result = run("dump", store.root, *options)
    assert result.exit_code == 2
    assert "Invalid value" in result.stderr


def test_text_of_a_message_cannot_control_a_terminal(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store")
    store.put(body=b"\x1b[2J", unique_key="\x1b]0;title\x07")
    result = run("dump", store.write())
    assert "\x1b" not in result.stdout
    assert "\\x1b[2J" in result.stdout


def test_verify(store: SyntheticStore) -> None:
    result = run("verify", store.root)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "No fault found." in result.stdout
    found = json.loads(run("verify", store.root, "--json").stdout)
    assert (found["ok"], found["faults"], found["counts"]["records"]) == (True, [], 30)


def test_verify_with_other_delay_levels(store: SyntheticStore) -> None:
    store.put("SCHEDULE_TOPIC_XXXX", 0, more={"DELAY": "1"})
    shutil.rmtree(store.root)
    store.write()
    assert run("verify", store.root).exit_code == 0
    result = run("verify", store.root, "--delay-levels", "2s", "--json")
    assert result.exit_code == 2
    assert [fault["field"] for fault in json.loads(result.stdout)["faults"]] == ["tagsCode"]
    result = run("verify", store.root, "--delay-levels", "soon")
    assert result.exit_code == 2
    assert "HINT" in result.stderr


# -- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [*COMMANDS, "rebuild"])
@pytest.mark.parametrize("place", ["missing", "empty", "file", "store/commitlog"])
def test_folders_that_are_not_a_store(store: SyntheticStore, command: str, place: str) -> None:
    base = store.root.parent
    (base / "empty").mkdir()
    (base / "file").write_text("x")
    before = content(base)
    result = run(command, base / place)
    assert result.exit_code == (1 if command == "verify" else 2)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert "HINT: " in result.stderr
    error = json.loads(run(command, base / place, "--json").stderr)["error"]
    assert error["type"] == "NotAStore"
    assert content(base) == before


Harm = Callable[[SyntheticStore], None]


def cut_segment(store: SyntheticStore) -> None:
    path = store.root / "commitlog" / f"{SEGMENT_BYTES:020d}"
    path.write_bytes(path.read_bytes()[:1000])


def rename_segment(store: SyntheticStore) -> None:
    path = max((store.root / "commitlog").iterdir())
    path.rename(path.with_name(f"{123_456:020d}"))


def add_stranger(store: SyntheticStore) -> None:
    (store.root / "commitlog" / "readme.txt").write_text("hello")


def remove_segment(store: SyntheticStore) -> None:
    (store.root / "commitlog" / f"{SEGMENT_BYTES:020d}").unlink()


@pytest.mark.parametrize("harm", [cut_segment, rename_segment, add_stranger, remove_segment])
def test_wrong_segments(store: SyntheticStore, harm: Harm) -> None:
    harm(store)
    before = content(store.root)
    for command, code in (("info", 1), ("dump", 1), ("verify", 2), ("rebuild", 1)):
        result = run(command, store.root, *(["--yes"] if command == "rebuild" else []))
        assert result.exit_code == code, (command, result.output)
        if command != "verify":
            assert "DETAIL: " in result.stderr
            assert "HINT: " in result.stderr
    assert content(store.root) == before
    found = json.loads(run("verify", store.root, "--json").stdout)
    assert any(fault["field"] == "file" for fault in found["faults"])
    assert json.loads(run("info", store.root, "--json").stdout)["problems"]


def test_garbage_in_the_middle(store: SyntheticStore) -> None:
    path = store.root / "commitlog" / f"{SEGMENT_BYTES:020d}"
    data = bytearray(path.read_bytes())
    data[500:900] = b"garbage!" * 50
    path.write_bytes(data)
    before = content(store.root)
    result = run("dump", store.root, "--json")
    assert result.exit_code == 1
    assert "Warning: bad record at" in result.stderr
    assert len(result.stdout.splitlines()) < 30
    result = run("verify", store.root)
    assert result.exit_code == 2
    assert "Fault    commitlog/" in result.stdout
    assert "faults found." in result.stdout
    result = run("rebuild", store.root, "--yes")
    assert result.exit_code == 1
    assert "the log has" in result.stderr
    assert content(store.root) == before


@pytest.mark.parametrize("has_backup", [True, False])
def test_unreadable_config(store: SyntheticStore, *, has_backup: bool) -> None:
    path = store.root / "config" / "topics.json"
    if has_backup:
        path.with_name("topics.json.bak").write_bytes(path.read_bytes())
    path.write_text('{"topicConfigTable":{')
    before = content(store.root)
    result = run("info", store.root)
    assert result.exit_code == 1
    assert "config/topics.json cannot be read" in result.stderr
    assert ("falls back to topics.json.bak" in result.stderr) == has_backup
    result = run("verify", store.root)
    assert result.exit_code == 2
    assert "config/topics.json: json:" in result.stdout
    assert content(store.root) == before


def test_a_store_newer_than_the_clock(
    store: SyntheticStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = ManualClock(store.placed[3].store_timestamp_ms)
    monkeypatch.setattr("roquet.cli.store.SystemClock", lambda: early)
    result = run("info", store.root)
    assert result.exit_code == 0
    assert "Warning: the newest record was stored" in result.stderr
    found = json.loads(run("verify", store.root, "--json").stdout)
    assert [f["physicalOffset"] for f in found["faults"] if f["field"] == "storeTimestamp"] == [
        store.placed[4].physical_offset
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_store_without_read_permission(store: SyntheticStore) -> None:
    (store.root / "commitlog" / f"{0:020d}").chmod(0)
    result = run("info", store.root)
    assert result.exit_code == 1
    assert "check its permissions" in result.stderr


def test_errors_of_the_file_system(store: SyntheticStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> int:
        raise PermissionError(13, "Permission denied", "the-file")

    monkeypatch.setattr("roquet.runtime.files.Files.open", refuse)
    for command in COMMANDS:
        result = run(command, store.root)
        assert result.exit_code == 1
        assert "the-file: Permission denied" in result.stderr
        assert "HINT" in result.stderr


# -- rebuild ------------------------------------------------------------------------------------


def test_rebuild_into(store: SyntheticStore, tmp_path: Path) -> None:
    before = content(store.root)
    result = run("rebuild", store.root, "--into", tmp_path / "new")
    assert result.exit_code == 0
    assert "Rebuilt       4 queues" in result.stdout
    assert content(store.root) == before
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["consumequeue", "index"]
    result = run("rebuild", store.root, "--into", tmp_path / "new")
    assert result.exit_code == 1
    assert "is not empty" in result.stderr


def test_rebuild_in_place(store: SyntheticStore) -> None:
    flip_bit(store.root / "consumequeue" / "Orders" / "1" / f"{0:020d}", 25, 2)
    assert run("verify", store.root).exit_code == 2
    found = json.loads(run("rebuild", store.root, "--yes", "--json").stdout)
    assert (found["records"], found["queues"], found["faults"]) == (30, 4, [])
    assert found["plan"]["inPlace"] is True
    assert run("verify", store.root).exit_code == 0


def test_rebuild_in_place_needs_confirmation(store: SyntheticStore) -> None:
    before = content(store.root)
    result = run("rebuild", store.root)
    assert result.exit_code == 2
    assert "needs --yes" in result.stderr
    assert str(store.root / "consumequeue") in result.stderr
    assert run("rebuild", store.root, "--json").exit_code == 2
    assert content(store.root) == before


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_rebuild_in_place_asks_for_confirmation_on_a_terminal(
    store: SyntheticStore, answer: str, code: int
) -> None:
    before = content(store.root)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "roquet", "store", "rebuild", str(store.root)]
    try:
        with subprocess.Popen(
            command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            os.write(ours, f"{answer}\n".encode())
            output, errors = process.communicate()
    finally:
        os.close(ours)
        os.close(theirs)
    assert process.returncode == code, errors
    assert f"Replaces      {store.root / 'index'}".encode() in output
    assert (content(store.root) == before) == (code == 1)


def test_rebuild_of_a_store_in_use(store: SyntheticStore, tmp_path: Path) -> None:
    before = content(store.root)
    with lock_held(store.root) as holder:
        result = run("rebuild", store.root, "--yes")
        assert result.exit_code == 1
        assert f"process {holder} holds the lock" in result.stderr
        assert "HINT" in result.stderr
        assert content(store.root) == before
        assert run("rebuild", store.root, "--into", tmp_path / "new").exit_code == 0


def test_rebuild_of_a_bad_log_into_another_folder(store: SyntheticStore, tmp_path: Path) -> None:
    flip_bit(store.root / "commitlog" / f"{0:020d}", store.placed[4].physical_offset + 90, 0)
    result = run("rebuild", store.root, "--into", tmp_path / "new")
    assert result.exit_code == 1
    assert "Warning: skipped: commitlog/" in result.stderr
    assert "from 29 records" in result.stdout


# -- formatting --------------------------------------------------------------------------------


def run_on_terminal(*arguments: object, results: bool, errors: bool) -> tuple[bytes, bytes]:
    """Run a command with a terminal for one of its streams; what the terminal and the pipe got."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "roquet", "store", *map(str, arguments)]
    drawn = b""
    try:
        with subprocess.Popen(
            command,
            stdout=theirs if results else subprocess.PIPE,
            stderr=theirs if errors else subprocess.PIPE,
        ) as process:
            os.close(theirs)
            while True:
                try:
                    drawn += os.read(ours, 65536)
                except OSError:  # the other end is closed
                    break
            output, other = process.communicate()
        assert process.returncode == 0
    finally:
        os.close(ours)
    return drawn, output or other or b""


def test_progress_is_drawn_on_a_terminal_only(store: SyntheticStore) -> None:
    drawn, output = run_on_terminal("verify", store.root, results=False, errors=True)
    assert b"Verifying" in drawn
    assert b"No fault found." in output
    assert b"\x1b" not in output


def test_tables_are_drawn_on_a_terminal_only(store: SyntheticStore) -> None:
    drawn, _ = run_on_terminal("info", store.root, results=True, errors=False)
    assert "┃".encode() in drawn
    assert "┃" not in run("info", store.root).stdout
