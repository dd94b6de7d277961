"""Positions and formats that come from a table of fields."""

from __future__ import annotations

from roquet.format import record_layout
from roquet.format.layout import Field, Layout
from roquet.format.record_layout import RECORD
from roquet.model import sys_flag as flags

THREE = Layout(Field("offset", "q"), Field("size", "i"), Field("code", "q"))


def test_positions_follow_from_the_fields_before() -> None:
    assert [THREE.at(field.name) for field in THREE.fields] == [0, 8, 12]
    assert THREE.bytes == 20


def test_a_part_and_a_selection() -> None:
    assert THREE.part("size", "code").format == ">iq"
    assert THREE.only("offset", "code").format == ">q4xq"
    assert THREE.only("size").format == ">8xi"


def test_a_record_is_laid_out_as_upstream() -> None:
    assert RECORD.struct.format == ">iIIiiqqiq8sq8siqi"
    assert record_layout.RECORD_BYTES_MIN == 91
    assert record_layout.PHYSICAL_OFFSET_AT == 28


def test_ipv6_hosts_move_the_fields_after_them() -> None:
    both = flags.BORN_HOST_V6 | flags.STORE_HOST_V6
    assert record_layout.body_at(0) == 88
    assert record_layout.body_at(flags.STORE_HOST_V6) == 100
    assert record_layout.body_at(both) == 112
    assert record_layout.store_timestamp_at(flags.STORE_HOST_V6) == 56
    assert record_layout.store_timestamp_at(both) == 68
