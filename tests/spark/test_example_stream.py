"""examples/spark_stream.py does what it shows."""

import importlib.util
from pathlib import Path

import pytest

from roquet.testing.background import background_broker

EXAMPLES = Path(__file__).parents[2] / "examples"

PRINTED = """\
after the first run: 2 totals
after the second run: 6 totals
12:00 north: 5 orders, 70 euros
12:00 south: 5 orders, 75 euros
12:01 north: 5 orders, 120 euros
12:01 south: 5 orders, 125 euros
12:02 north: 5 orders, 170 euros
12:02 south: 5 orders, 175 euros
"""


@pytest.mark.usefixtures("spark")
def test_the_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("spark_stream", EXAMPLES / "spark_stream.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with background_broker() as broker:
        module.main(broker.namesrv, tmp_path)
    assert capsys.readouterr().out == PRINTED
