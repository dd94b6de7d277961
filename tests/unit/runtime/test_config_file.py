"""A settings file and its backup: what a load finds, and what failures and crashes leave."""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from roquet.errors import ConfigError, DiskFull, StoreError
from roquet.model.fastjson import JsonValue, loads
from roquet.runtime import failpoint
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Buffer, Files

OLDER = '{"offsetTable":{0:1}}'
OLD = '{"offsetTable":{0:12}}'
NEW = '{"offsetTable":{0:123,1:7}}'
DAMAGED = '{\n\t"offsetTable":{0:12'

R = TypeVar("R")


class Crash(BaseException):
    """The process is gone: none of its code runs any more."""


class When(enum.Enum):
    BEFORE = "the call does nothing"
    HALF = "a write takes half its bytes"
    AFTER = "the call does its work and fails all the same"
    CRASH_BEFORE = "the process dies before the call"
    CRASH_AFTER = "the process dies after the call"


@dataclass
class FailingFiles(Files):
    """Fails the n-th system call in the requested way; n counts from 1."""

    fail_at: int
    when: When
    code: int = errno.EIO
    calls: int = 0
    reached: bool = False

    def attempt(self, call: Callable[[], R], half: Callable[[], object] | None = None) -> R:
        self.calls += 1
        dead = self.when in {When.CRASH_BEFORE, When.CRASH_AFTER}
        if self.calls < self.fail_at or (self.calls > self.fail_at and not dead):
            return call()
        self.reached = True
        if self.calls == self.fail_at:
            if self.when is When.HALF and half is not None:
                half()
            elif self.when in {When.AFTER, When.CRASH_AFTER}:
                call()
        raise Crash if dead else OSError(self.code, os.strerror(self.code))

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        if self.when is When.AFTER:
            # An open that fails gives no descriptor; all it can leave is the file.
            return self.attempt(lambda: self.opened(path, write=write, create=create))
        return self.attempt(
            lambda: super(FailingFiles, self).open(path, write=write, create=create)
        )

    def opened(self, path: Path, *, write: bool, create: bool) -> int:
        fd = super().open(path, write=write, create=create)
        if self.calls == self.fail_at:
            os.close(fd)
        return fd

    def close(self, fd: int) -> None:
        super().close(fd)
        self.attempt(lambda: None)

    def length(self, fd: int) -> int:
        return self.attempt(lambda: super(FailingFiles, self).length(fd))

    def read_at(self, fd: int, size_bytes: int, position: int) -> bytes:
        return self.attempt(lambda: super(FailingFiles, self).read_at(fd, size_bytes, position))

    def write_at(self, fd: int, data: Buffer, position: int) -> None:
        def write(part: Buffer) -> None:
            super(FailingFiles, self).write_at(fd, part, position)

        self.attempt(lambda: write(data), lambda: write(memoryview(data)[: len(data) // 2]))

    def truncate(self, fd: int, size_bytes: int) -> None:
        self.attempt(lambda: super(FailingFiles, self).truncate(fd, size_bytes))

    def data_sync(self, fd: int) -> None:
        self.attempt(lambda: super(FailingFiles, self).data_sync(fd))

    def sync_dir(self, path: Path) -> None:
        self.attempt(lambda: super(FailingFiles, self).sync_dir(path))

    def rename(self, source: Path, target: Path) -> None:
        self.attempt(lambda: super(FailingFiles, self).rename(source, target))

    def unlink(self, path: Path) -> None:
        self.attempt(lambda: super(FailingFiles, self).unlink(path))


class TracingFiles(Files):
    """Remembers the calls that change the disk or make it durable."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.fails_to_sync_dir = False

    def write_at(self, fd: int, data: Buffer, position: int) -> None:
        self.trace.append(f"write {len(data)}")
        super().write_at(fd, data, position)

    def data_sync(self, fd: int) -> None:
        self.trace.append("sync")
        super().data_sync(fd)

    def sync_dir(self, path: Path) -> None:
        self.trace.append(f"sync_dir {path.name}")
        if self.fails_to_sync_dir:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync_dir(path)

    def rename(self, source: Path, target: Path) -> None:
        self.trace.append(f"rename {source.name} {target.name}")
        super().rename(source, target)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "consumerOffset.json"


def config_at(path: Path, files: Files | None = None) -> ConfigFile[JsonValue]:
    return ConfigFile(path, files or Files(), decode=loads)


def put(path: Path, **texts: str | bytes) -> None:
    """Write the named files: ``current`` and ``bak``, ``tmp`` … beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for kind, text in texts.items():
        target = path if kind == "current" else path.with_name(f"{path.name}.{kind}")
        target.write_bytes(text.encode() if isinstance(text, str) else text)


def on_disk(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.parent.glob("*"))}


def loaded_text(path: Path) -> str | None:
    loaded = config_at(path).load()
    return None if loaded is None else loaded.text


# ------------------------------------------------------------------------------------- loading


def test_no_files(path: Path) -> None:
    assert config_at(path).load() is None


def test_current_is_loaded(path: Path) -> None:
    put(path, current=NEW, bak=OLD)
    loaded = config_at(path).load()
    assert loaded is not None
    assert loaded.value == {"offsetTable": {0: 123, 1: 7}}
    assert (loaded.text, loaded.path, loaded.problem) == (NEW, path, None)


@pytest.mark.parametrize(
    ("current", "reason"),
    [
        (None, "does not exist"),
        (b"", "is blank (0 bytes)"),
        (b" \r\n\t", "is blank (4 bytes)"),
        (bytes(4096), "is blank (4096 bytes)"),
        (
            DAMAGED.encode(),
            "is damaged: This is not JSON as RocketMQ writes it: a ',' or '}' must follow"
            " (line 2, column 21, near '\\t\"offsetTable\":{0:12')",
        ),
        (b'{"a":"\xff"}', "is damaged: 'utf-8' codec can't decode byte 0xff in position 6"),
    ],
)
def test_backup_is_loaded_with_a_report(path: Path, current: bytes | None, reason: str) -> None:
    put(path, bak=OLD)
    if current is not None:
        put(path, current=current)
    before = on_disk(path)
    loaded = config_at(path).load()
    assert loaded is not None
    assert (loaded.text, loaded.path) == (OLD, path.with_name("consumerOffset.json.bak"))
    assert loaded.problem is not None
    assert loaded.problem.message == (
        "consumerOffset.json cannot be used, so its backup was loaded."
    )
    assert loaded.problem.detail is not None
    assert loaded.problem.detail.startswith(f"{path} {reason}")
    assert loaded.problem.hint
    assert on_disk(path) == before


@pytest.mark.parametrize(
    ("texts", "reasons"),
    [
        ({"current": DAMAGED}, ["is damaged", "line 2, column 21", "does not exist"]),
        ({"current": ""}, ["is blank (0 bytes)", "does not exist"]),
        ({"bak": DAMAGED}, ["does not exist", "is damaged", "line 2, column 21"]),
        ({"current": "", "bak": "\0"}, ["is blank (0 bytes)", "is blank (1 bytes)"]),
        ({"current": "{a", "bak": "[1"}, ["line 1, column 3", "line 1, column 3"]),
    ],
)
def test_unusable_in_both_is_an_error_that_changes_nothing(
    path: Path, texts: dict[str, str], reasons: list[str]
) -> None:
    put(path, **texts)
    before = on_disk(path)
    with pytest.raises(ConfigError, match=r"Neither consumerOffset\.json nor its backup") as caught:
        config_at(path).load()
    detail = caught.value.detail or ""
    for reason in reasons:
        assert reason in detail
        detail = detail[detail.index(reason) + len(reason) :]
    assert "Repair the file" in (caught.value.hint or "")
    assert on_disk(path) == before


def test_decoders_may_refuse_with_a_value_error(path: Path) -> None:
    put(path, current="seven", bak="6")
    loaded = ConfigFile(path, Files(), decode=int).load()
    assert loaded is not None
    assert loaded.value == 6
    assert "seven" in str(loaded.problem)


def test_a_read_that_may_work_tomorrow_does_not_fall_back(path: Path) -> None:
    put(path, current=NEW, bak=OLD)
    files = FailingFiles(fail_at=1, when=When.BEFORE, code=errno.EMFILE)
    with pytest.raises(StoreError, match=r"consumerOffset\.json cannot be read") as caught:
        config_at(path, files).load()
    assert os.strerror(errno.EMFILE) in (caught.value.detail or "")
    assert caught.value.hint


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    put(path, bak=OLD)
    (tmp_path / "elsewhere").write_text(NEW, "utf-8")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="cannot be read"):
        config_at(path).load()


# -------------------------------------------------------------------------------------- saving


def test_first_save_makes_the_directory(path: Path) -> None:
    config_at(path).save(NEW)
    assert on_disk(path) == {"consumerOffset.json": NEW.encode()}


def test_each_save_keeps_the_text_before(path: Path) -> None:
    config = config_at(path)
    for text in (OLDER, OLD, NEW):
        config.save(text)
    assert on_disk(path) == {
        "consumerOffset.json": NEW.encode(),
        "consumerOffset.json.bak": OLD.encode(),
    }


def test_text_is_written_as_utf8_and_replaces_longer_text(path: Path) -> None:
    put(path, current='{"a":"' + "x" * 1000 + '"}', tmp="y" * 5000)
    config_at(path).save('{"é":"中😀"}')
    assert path.read_text("utf-8") == '{"é":"中😀"}'
    assert loaded_text(path) == '{"é":"中😀"}'


def test_bytes_are_durable_before_their_name(path: Path) -> None:
    put(path, current=OLD, bak=OLDER)
    files = TracingFiles()
    config_at(path, files).save(NEW)
    assert files.trace == [
        f"write {len(NEW)}",
        "sync",
        "rename consumerOffset.json consumerOffset.json.bak",
        "rename consumerOffset.json.tmp consumerOffset.json",
        "sync_dir config",
    ]


@pytest.mark.parametrize("load_first", [True, False])
def test_damaged_current_never_replaces_the_backup(path: Path, *, load_first: bool) -> None:
    put(path, current=DAMAGED, bak=OLD)
    config = config_at(path)
    if load_first:
        assert config.load() is not None
    config.save(NEW)
    assert on_disk(path) == {
        "consumerOffset.json": NEW.encode(),
        "consumerOffset.json.bak": OLD.encode(),
        "consumerOffset.json.damaged-1": DAMAGED.encode(),
    }


def test_damaged_files_are_all_kept(path: Path) -> None:
    for number in (1, 2):
        put(path, current=f"[{number}")
        config_at(path).save(NEW)
    kept = {name: data for name, data in on_disk(path).items() if "damaged" in name}
    assert kept == {
        "consumerOffset.json.damaged-1": b"[1",
        "consumerOffset.json.damaged-2": b"[2",
    }


def test_a_failed_save_forgets_what_was_known_of_the_files(path: Path) -> None:
    put(path, current=DAMAGED, bak=OLDER)
    files = TracingFiles()
    config = config_at(path, files)
    assert config.load() is not None
    files.fails_to_sync_dir = True
    with pytest.raises(StoreError, match="was not saved"):
        config.save(OLD)
    files.fails_to_sync_dir = False
    config.save(NEW)
    assert on_disk(path) == {
        "consumerOffset.json": NEW.encode(),
        "consumerOffset.json.bak": OLD.encode(),
        "consumerOffset.json.damaged-1": DAMAGED.encode(),
    }


def test_blank_current_never_replaces_the_backup(path: Path) -> None:
    put(path, current=bytes(64), bak=OLD)
    config_at(path).save(NEW)
    assert on_disk(path) == {
        "consumerOffset.json": NEW.encode(),
        "consumerOffset.json.bak": OLD.encode(),
    }


def test_a_current_file_removed_meanwhile_is_no_error(path: Path) -> None:
    config = config_at(path)
    config.save(OLDER)
    config.save(OLD)
    path.unlink()
    config.save(NEW)
    assert on_disk(path) == {
        "consumerOffset.json": NEW.encode(),
        "consumerOffset.json.bak": OLDER.encode(),
    }


@pytest.mark.parametrize("blank", ["", " \n", "\0\0"])
def test_blank_text_is_refused_before_anything_happens(path: Path, blank: str) -> None:
    put(path, current=OLD)
    before = on_disk(path)
    with pytest.raises(ValueError, match="blank text"):
        config_at(path).save(blank)
    assert on_disk(path) == before


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (errno.ENOSPC, DiskFull, "was not saved: there is no space"),
        (errno.EDQUOT, DiskFull, "was not saved: there is no space"),
        (errno.EIO, StoreError, "was not saved: the file system refused"),
    ],
)
def test_failed_save_gives_the_reason(
    path: Path, code: int, kind: type[StoreError], message: str
) -> None:
    put(path, current=OLD)
    config = config_at(path, FailingFiles(fail_at=7, when=When.HALF, code=code))
    with pytest.raises(StoreError, match=message) as caught:
        config.save(NEW)
    assert type(caught.value) is kind
    assert os.strerror(code) in (caught.value.detail or "")
    assert (caught.value.hint or "").startswith("The previous text is still there.")
    assert on_disk(path) == {"consumerOffset.json": OLD.encode()}


# ---------------------------------------------------------------------------- failures, crashes

STARTS: list[dict[str, str]] = [
    {},
    {"current": OLD},
    {"current": OLD, "bak": OLDER},
    {"current": OLD, "bak": OLDER, "tmp": "left by a crash"},
    {"current": OLD, "bak": DAMAGED},
    {"bak": OLD},
    {"bak": OLD, "tmp": NEW[:5]},
    {"current": "", "bak": OLD},
    {"current": DAMAGED, "bak": OLD},
]
START_IDS = ["+".join(start) or "nothing" for start in STARTS]


def every_failure(
    tmp_path: Path, start: dict[str, str], when: When, code: int
) -> Iterator[tuple[Path, FailingFiles]]:
    """A fresh directory for n = 1, 2, 3 …, until a whole run makes fewer than n calls."""
    for number in range(1, 100):
        path = tmp_path / str(number) / "config" / "consumerOffset.json"
        put(path, **start)
        files = FailingFiles(fail_at=number, when=when, code=code)
        yield path, files
        if not files.reached:
            assert number > 5
            return
    pytest.fail("a save makes fewer than a hundred calls")


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("start", STARTS, ids=START_IDS)
def test_a_save_that_fails_anywhere_leaves_old_or_new(
    tmp_path: Path, start: dict[str, str], when: When, code: int
) -> None:
    old = OLD if start else None
    for path, files in every_failure(tmp_path, start, when, code):
        config = config_at(path, files)
        saved = False
        try:
            config.save(NEW)
            saved = True
        except (StoreError, Crash):
            pass
        found = loaded_text(path)
        assert found in ({NEW} if saved else {old, NEW}), f"call {files.fail_at}"
        # Whatever was left behind, the next save succeeds, in the same process or in the next one.
        files.fail_at = 0
        again = config_at(path) if when.name.startswith("CRASH") else config
        again.save(NEW)
        assert loaded_text(path) == NEW
        assert not path.with_name(path.name + ".tmp").exists()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("start", STARTS, ids=START_IDS)
def test_a_load_that_fails_anywhere_changes_nothing(
    tmp_path: Path, start: dict[str, str], when: When, code: int
) -> None:
    for number in range(1, 9):
        path = tmp_path / str(number) / "config" / "consumerOffset.json"
        put(path, **start)
        before = on_disk(path)
        try:
            loaded = config_at(path, FailingFiles(number, when, code)).load()
        except (ConfigError, StoreError) as error:
            text = error.hint
        else:
            text = loaded.text if loaded is not None else None
            assert text in {OLD, OLDER} or not start
        assert text or not start
        assert on_disk(path) == before


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("config_file.new_written", {"": OLD, ".bak": OLDER, ".tmp": NEW}),
        ("config_file.old_kept", {".bak": OLD, ".tmp": NEW}),
        ("config_file.new_in_place", {"": NEW, ".bak": OLD}),
    ],
)
def test_what_a_crash_leaves_at_each_step(path: Path, name: str, left: dict[str, str]) -> None:
    put(path, current=OLD, bak=OLDER)

    def crash(reached: str) -> None:
        if reached == name:
            raise Crash

    with failpoint.installed(crash), pytest.raises(Crash):
        config_at(path).save(NEW)
    assert on_disk(path) == {path.name + end: text.encode() for end, text in left.items()}
    assert loaded_text(path) in {OLD, NEW}
