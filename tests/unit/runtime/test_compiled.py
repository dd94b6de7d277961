import os
import subprocess
import sys

import pytest

from roquet.runtime import compiled

HERE = "roquet.runtime.clock"  # any module that exists
GONE = "roquet.runtime._no_such_module"


@pytest.mark.parametrize("value", [None, "", "0"])
def test_built_modules_are_used(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is None:
        monkeypatch.delenv("ROQUET_PURE", raising=False)
    else:
        monkeypatch.setenv("ROQUET_PURE", value)
    assert compiled.is_used(HERE)
    assert not compiled.is_used(GONE)


def test_roquet_pure_switches_compiled_code_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROQUET_PURE", "1")
    assert compiled.is_built(HERE)
    assert not compiled.is_used(HERE)


@pytest.mark.parametrize(
    ("pure", "module", "said"),
    [
        ("0", HERE, "compiled"),
        ("1", HERE, "reference path, slower: ROQUET_PURE is set"),
        ("1", GONE, "reference path, slower: ROQUET_PURE is set"),
        (
            "0",
            GONE,
            "reference path, slower: not compiled; install a C compiler and Python's headers, "
            "then install Roquet again with pip's --force-reinstall --no-cache-dir",
        ),
    ],
)
def test_the_path_in_use_is_reported(
    monkeypatch: pytest.MonkeyPatch, pure: str, module: str, said: str
) -> None:
    monkeypatch.setenv("ROQUET_PURE", pure)
    monkeypatch.setattr(compiled, "HOT_PATH", module)
    assert compiled.path_in_use() == said


def test_a_process_that_starts_with_roquet_pure_imports_sources_only() -> None:
    program = (
        "import sys, roquet.broker.broker\n"
        "own = [m for name, m in sys.modules.items() if name.startswith('roquet.')]\n"
        "print(len(own) > 100, {m.__file__.rpartition('.')[2] for m in own})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ROQUET_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "True {'py'}"
