"""What the package itself exports."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

SCRIPTS = {
    "function first": "from roquet.testing import broker",
    "module first": "from roquet.testing.broker import RunningBroker\n"
    "from roquet.testing import broker",
    "module after": "from roquet.testing import broker as first\n"
    "from roquet.testing.broker import RunningBroker, broker\n"
    "assert first is broker",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_broker_is_the_function(script: str) -> None:
    check = "import inspect; assert inspect.isfunction(broker), broker"
    subprocess.run([sys.executable, "-c", f"{script}\n{check}"], check=True)


def test_the_package_alone_imports_nothing() -> None:
    count = "sum(each.startswith('roquet') for each in sys.modules)"
    script = f"import sys, roquet.testing; print({count})"
    found = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert int(found.stdout) == 2


def test_type_checkers_and_help_see_it() -> None:
    from roquet.testing import __all__, broker

    assert __all__ == ["broker"]
    assert (inspect.getdoc(broker) or "").startswith("Run a name server and a broker")
