"""What all tests share: one printed seed, Hypothesis without deadlines, groups and signals."""

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import roquet
from tests.campaign import IS_SEED_GIVEN, SEED, examples
from tests.folder_table import Phase, table

# A deadline would make a test fail because the machine is busy. The blob repeats a failure.
settings.register_profile(
    "roquet",
    deadline=None,
    max_examples=examples(100),
    derandomize=not IS_SEED_GIVEN,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("roquet")


SOURCES = Path(__file__).parents[1] / "src"
DISK = "/var/tmp"  # noqa: S108 - as below
MEMORY = Path("/dev/shm")  # noqa: S108 - directories below it have names of their own
MEMORY_MIN_BYTES = 10 << 30


def has_memory_to_spare() -> bool:
    """Whether the files of all tests fit into memory, with room for Spark and Java beside them."""
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK):
        return False
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    available_kb = {
        name: rest.split()[0] for name, _, rest in (each.partition(":") for each in lines)
    }
    bytes_free = min(int(available_kb["MemAvailable"]) << 10, shutil.disk_usage(MEMORY).free)
    return bytes_free >= MEMORY_MIN_BYTES


# Stores sync their files often, and a disk takes milliseconds for what no test looks at. TMPDIR
# says where the files go instead; processes that tests start inherit it.
if "TMPDIR" not in os.environ and has_memory_to_spare():
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def stale_modules() -> list[str]:
    """Sources of this checkout that were changed after the modules were compiled."""
    built = {path: path.stat().st_mtime for path in SOURCES.rglob("*.so")}
    stale = [
        source
        for path, built_at in built.items()
        for source in path.parent.glob(f"{path.name.partition('.')[0]}.py*")
        if source.suffix in {".py", ".pyx"} and source.stat().st_mtime > built_at
    ]
    shared = [*SOURCES.rglob("*.pxd"), *SOURCES.rglob("*.h")]
    oldest = min(built.values(), default=float("inf"))
    stale += [path for path in shared if path.stat().st_mtime > oldest]
    return [path.relative_to(SOURCES).as_posix() for path in stale]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Gives Hypothesis the seed of the run, and lets signals reach the programs under test."""
    stale = stale_modules() if Path(roquet.__file__).is_relative_to(SOURCES) else []
    if stale and os.environ.get("ROQUET_PURE", "") in {"", "0"}:
        raise pytest.UsageError(f"run `make setup`: {', '.join(stale)} changed after the build")
    if IS_SEED_GIVEN and config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = SEED
    # A shell starts its background jobs with these signals ignored, and children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_report_header() -> str:
    pure = os.environ.get("ROQUET_PURE", "") not in {"", "0"}
    return f"roquet: ROQUET_TEST_SEED={SEED} ROQUET_PURE={int(pure)}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Runs tests of one xdist_group in one process.

    Names of tests must be the same in all processes, or xdist refuses to run any.

    pytest-xdist 3.8 writes the group to where pytest looked before 9.1; newer ones have the id as
    an object. Without this each process would start servers of its own for every group.
    """
    unstable = [item.nodeid for item in items if " object at 0x" in item.nodeid]
    if unstable:
        raise pytest.UsageError(f"give these tests ids that are the same in every run: {unstable}")
    if getattr(config.option, "loadgroup", False):
        for item in items:
            as_object, as_text = getattr(item, "_id", None), getattr(item, "_nodeid", None)
            if as_object is not None and as_text is not None:
                setattr(item, "_id", type(as_object).parse(as_text))  # noqa: B010 - is not typed


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Adds the tests and seconds of every folder to the slowest tests, if those are requested."""
    if config.getoption("durations") is None:
        return
    terminalreporter.section("tests and seconds by folder")
    reports = [
        each
        for reports in terminalreporter.stats.values()
        for each in reports
        if isinstance(each, pytest.TestReport)
    ]
    for line in table(Phase(each.nodeid, each.duration) for each in reports):
        terminalreporter.line(line)


@pytest.fixture
def seed() -> int:
    """The seed of this run; print it in whatever a random test reports."""
    return SEED


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A directory whose file system drops pages from memory, for tests of exactly that."""
    with tempfile.TemporaryDirectory(dir=DISK, prefix="roquet-") as name:
        yield Path(name)


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Randomness that ROQUET_TEST_SEED repeats."""
    return random.Random(seed)


@pytest.fixture(scope="module")
def compiled_on() -> Iterator[None]:
    """Lets compiled code be used, whatever the previous test has set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROQUET_PURE", "0")
        yield


@pytest.fixture(scope="module")
def unsynced_disk() -> Iterator[None]:
    """Lets syncs of files do nothing, for tests that make many small stores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _fd: None)
        patch.setattr("os.fdatasync", lambda _fd: None)
        yield
