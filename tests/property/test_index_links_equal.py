"""The compiled follower of index chains and the one in numpy, fed the same entries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.runtime import compiled
from roquet.spark.log.index_tables import ENTRY_TYPE, ExpectedChains
from tests.campaign import examples

MODULE = "roquet.storefiles._index_links"

pytestmark = pytest.mark.skipif(not compiled.is_used(MODULE), reason="compiled code does not run")


@settings(max_examples=examples(60))
@given(
    hashes=st.lists(st.sampled_from([0, 1, 5, 6, 2**31 - 1, 40]), max_size=30),
    slots=st.integers(1, 7),
    wrong=st.none() | st.tuples(st.integers(0, 29), st.sampled_from([-1, 0, 3])),
    is_negative=st.booleans(),
    cut=st.integers(0, 30),
)
def test_both_accept_the_same_entries(
    hashes: list[int],
    slots: int,
    wrong: tuple[int, int] | None,
    is_negative: bool,  # noqa: FBT001 - hypothesis passes it by name
    cut: int,
) -> None:
    entries = np.zeros(len(hashes), dtype=ENTRY_TYPE)
    newest: dict[int, int] = {}
    for at, value in enumerate(hashes):
        entries[at] = (value, at * 100, 0, newest.get(value % slots, 0))
        newest[value % slots] = at + 1
    if wrong is not None and wrong[0] < len(entries):
        entries["key_hash" if is_negative else "previous"][wrong[0]] = wrong[1]
    found = []
    for is_compiled in (True, False):
        chains = ExpectedChains(np.zeros(slots, dtype=np.int32))
        with pytest.MonkeyPatch.context() as patch:
            if not is_compiled:
                patch.setattr(compiled, "is_used", lambda _name: False)
            pieces = [(1, entries[:cut]), (1 + len(entries[:cut]), entries[cut:])]
            sound = [chains.add_sound(first, piece) for first, piece in pieces]
        found.append((sound, chains.newest.tolist()))
    assert found[0] == found[1]
