"""docs/reference/protocol.md matches the tables."""

from __future__ import annotations

from pathlib import Path

from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.protocol_page import protocol_page

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "protocol.md"


def test_the_page_is_current() -> None:
    remedy = "run python -m roquet.remoting.protocol_page > docs/reference/protocol.md"
    assert PAGE.read_text("utf-8") == protocol_page(), remedy


def test_every_code_is_on_the_page() -> None:
    page = protocol_page()
    for code in [*RequestCode, *ResponseCode]:
        assert f"| {int(code)} | `{code.name}` |" in page


def test_a_row() -> None:
    assert (
        "| 41 | `LOCK_BATCH_MQ` | lock queues for orderly consumption | broker "
        "| `LockBatchMqRequestHeader`<br>`LockBatchRequestBody` | `LockBatchResponseBody` |"
    ) in protocol_page()
    assert "| `KVKeyRequestHeader` | **namespace** string, **key** string |" in protocol_page()
