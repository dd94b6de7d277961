"""The rule of plain sends."""

from __future__ import annotations

import pytest

from roquet.broker.processor import inner_message as inner
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.plain_send import PLAIN_SYS_FLAGS, is_reserved

SPECIAL = {
    *inner.REPLACED,
    *inner.TIMER_REQUESTS,
    inner.PRIORITY,
    prop.DELAY_TIME_LEVEL,
    prop.TRANSACTION_PREPARED,
    prop.INNER_NUM,
}


@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_names_that_a_broker_acts_on_are_reserved(name: str) -> None:
    assert is_reserved(name)


OWN = [prop.TAGS, prop.KEYS, prop.WAIT_STORE_MSG_OK, prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX]


@pytest.mark.parametrize("name", [*OWN, prop.SHARDING_KEY, "PRICE", "tracer", "Re", ""])
def test_names_of_producers_are_not_reserved(name: str) -> None:
    assert not is_reserved(name)


def test_flags_that_change_what_is_stored_are_not_plain() -> None:
    changing = flags.TRANSACTION_MASK | flags.INNER_BATCH | flags.BORN_HOST_V6 | flags.STORE_HOST_V6
    assert not PLAIN_SYS_FLAGS & changing
