"""The rows of the benchmark of replication, its table, and the copy that it compares with."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from benchmarks import ha, plain_copy
from benchmarks.broker import APACHE, ROQUET, Numbers
from benchmarks.ha_sink import Skipper
from benchmarks.pairs import behind_bytes
from benchmarks.report import Line
from benchmarks.rows import CPU_KEY, RATE_KEY
from roquet.format.ha_frames import encode_transfer_header
from roquet.remoting.bodies.broker import HAConnectionRuntimeInfo, HARuntimeInfo


def sends(rate: float, *, failed: float = 0, behind: float = 0) -> dict[str, float]:
    values = {RATE_KEY: rate, "failed": failed, "p99_us": 9.0, CPU_KEY: 2.0}
    return {**values, ha.SLAVE_CPU_KEY: 1.0, ha.BEHIND_KEY: behind}


def found(numbers: Numbers, *names: str) -> dict[tuple[str, str], Line]:
    wanted = [row for row in ha.ROWS if row.name in names]
    return {(line.row, line.measure): line for line in ha.lines_of(numbers, wanted, gib=8)}


def test_a_pair_is_compared_with_a_java_pair() -> None:
    numbers = Numbers()
    numbers.results[APACHE, ha.SYNC_PAIR] += [sends(10, failed=3), sends(20), sends(30)]
    numbers.results[ROQUET, ha.SYNC_PAIR] += [sends(81), sends(80), sends(10, failed=1)]
    lines = found(numbers, ha.SYNC_PAIR)
    rate = lines["SYNC_MASTER and SLAVE", "messages/s"]
    assert (rate.peer, rate.theirs, rate.ours, rate.passed) == (APACHE, 20, 80, True)
    assert lines["SYNC_MASTER and SLAVE", "slave CPU us/message"].ours == 1
    refused = lines["SYNC_MASTER and SLAVE", "refused"]
    assert (refused.theirs, refused.ours, refused.passed) == (3, 1, False)


def test_a_slave_may_cost_a_fifth_of_the_rate() -> None:
    for name, work, rate, is_enough in (
        (ha.ASYNC_COST, "ASYNC_MASTER with a SLAVE", 80, True),
        (ha.ASYNC_FAR, "ASYNC_MASTER, slave elsewhere", 79, False),
    ):
        numbers = Numbers()
        numbers.results[ha.ALONE, name].append(sends(100))
        numbers.results[ROQUET, name].append(sends(rate, behind=3))
        lines = found(numbers, name)
        line = lines[work, "messages/s"]
        assert (line.peer, line.passed) == (ha.ALONE, is_enough)
        assert lines[work, "MB behind at the end"].ours == 3


def test_catching_up_is_compared_with_a_plain_copy() -> None:
    numbers = Numbers()
    numbers.results[ha.COPY, ha.CATCH_UP].append({ha.SPEED_KEY: 1_000.0, ha.ALL_KEY: 2.0})
    numbers.results[ROQUET, ha.CATCH_UP].append({ha.SPEED_KEY: 600.0, ha.ALL_KEY: 4.0})
    line = found(numbers, ha.CATCH_UP)["a slave catches up, 8 GiB", "MB/s"]
    assert (line.peer, line.ratio, line.passed) == (ha.COPY, 0.6, True)


def test_rows_without_results_have_no_verdict() -> None:
    assert not any(line.passed for line in found(Numbers(), *ha.ROW_NAMES).values())


def test_options() -> None:
    for name in ha.ROW_NAMES:
        assert ha.parse(["--only", name]).only == [name]
    options = ha.parse([])
    assert (options.gib, options.warm, options.rounds) == (2, 12, 3)
    for text in ("0", "-1", "nan"):
        with pytest.raises(SystemExit):
            ha.parse([f"--gib={text}"])


def test_the_master_alone_comes_first() -> None:
    sides, java = ha.make_sides(ha.ROWS, skip_java=True)
    assert java is None
    assert list(sides[ha.SYNC_PAIR]) == [ROQUET]
    assert list(sides[ha.ASYNC_COST]) == list(sides[ha.ASYNC_FAR]) == [ha.ALONE, ROQUET]


def test_both_pairs_wait_for_their_slaves() -> None:
    assert ha.SYNC_MASTER["inSyncReplicas"] == 2


def test_a_slave_that_has_not_reported_lacks_everything() -> None:
    info = HARuntimeInfo(master_commit_log_max_offset=100)
    assert behind_bytes(info) == 100
    info.ha_connection_info = [HAConnectionRuntimeInfo(slave_ack_offset=-1)]
    assert behind_bytes(info) == 100
    info.ha_connection_info.append(HAConnectionRuntimeInfo(slave_ack_offset=70))
    assert behind_bytes(info) == 30


def test_a_sink_knows_how_much_it_has_received() -> None:
    stream = memoryview(
        encode_transfer_header(0, 0)
        + (encode_transfer_header(1_000, 300) + bytes(300))
        + (encode_transfer_header(1_300, 4) + b"tail")
    )
    for step in (1, 7, 12, 100, len(stream)):
        skipper = Skipper()
        for at in range(0, len(stream), step):
            skipper.skip(stream[at : at + step])
        assert skipper.end_offset == 1_304


def test_a_plain_copy_has_the_bytes_of_all_segments(tmp_path: Path) -> None:
    size = plain_copy.BLOCK_BYTES + 7
    whole = bytes(range(256)) * (3 * size // 256 + 1)
    for number in range(3):
        begins = number * size
        (tmp_path / f"{begins:020d}").write_bytes(whole[begins : begins + size])
    first, end = 5, 2 * size + 100
    parts = plain_copy.parts_of(tmp_path, first, end)
    assert [(part.first, part.end) for part in parts] == [(5, size), (0, size), (0, 100)]
    assert len(plain_copy.parts_of(tmp_path, size, 2 * size)) == 1
    sender, receiver = socket.socketpair()
    assert plain_copy.copy_between(sender, receiver, parts, tmp_path / "copy") > 0
    assert (tmp_path / "copy").read_bytes() == whole[first:end]
