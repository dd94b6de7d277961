"""Many sends in flight, over loopback and with the store's own threads."""

from __future__ import annotations

import asyncio
from pathlib import Path

from roquet.broker.broker import Broker
from roquet.broker.config import BrokerConfig
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.frame import FrameDecoder
from roquet.runtime.clock import ManualClock
from roquet.store.config import FlushDiskType, MessageStoreConfig
from roquet.testing.hooked_files import QuickFiles
from tests.unit.broker.processor.send_kit import PLAIN, send_header

CONNECTIONS = 8
WINDOW = 64
ROUNDS = 3


async def send_window(port: int, number: int) -> list[RemotingCommand]:
    """Sends of one connection, a whole window at a time; every other one is not plain."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    decoder = FrameDecoder()
    answers: list[RemotingCommand] = []
    for round_ in range(ROUNDS):
        frames = [
            encode_command(
                create_request(
                    RequestCode.SEND_MESSAGE_V2,
                    send_header(PLAIN if opaque % 2 else "", topic="New", queue_id=number % 4),
                    opaque=round_ * WINDOW + opaque,
                    body=f"{number}-{round_}-{opaque}".encode(),
                )
            )
            for opaque in range(WINDOW)
        ]
        writer.write(b"".join(frames))
        while len(answers) < (round_ + 1) * WINDOW:
            data = await reader.read(1 << 16)
            assert data, "the broker closed the connection"
            decoder.feed(data)
            while (frame := decoder.next_frame()) is not None:
                answers.append(decode_command(frame))
    writer.close()
    await writer.wait_closed()
    return answers


async def test_waiting_for_the_disk_refuses_nothing(tmp_path: Path) -> None:
    """No time passes, so that nothing is refused for a slow machine either."""
    store_config = MessageStoreConfig(
        commit_log_file_bytes=1 << 20,
        consume_queue_file_bytes=20_000,
        index_slots=1000,
        index_entries=4000,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
    )
    config = BrokerConfig(listen_port=0, store_root=str(tmp_path))
    async with Broker(config, store_config, files=QuickFiles(), clock=ManualClock()) as broker:
        answered = await asyncio.gather(
            *(send_window(broker.port, number) for number in range(CONNECTIONS))
        )
        places = [
            (fields["queueId"], int(fields["queueOffset"]), fields["msgId"])
            for answers in answered
            for answer in answers
            if (fields := answer.ext_fields or {})
        ]
        assert {answer.code for answers in answered for answer in answers} == {ResponseCode.SUCCESS}
        for answers in answered:
            assert [answer.opaque for answer in answers] == list(range(ROUNDS * WINDOW))
        assert len(set(places)) == CONNECTIONS * WINDOW * ROUNDS
        assert broker.store.flushed_offset == broker.store.max_physical_offset
        for queue_id in range(4):
            offsets = sorted(at for queue, at, _ in places if queue == str(queue_id))
            assert offsets == list(range(CONNECTIONS * WINDOW * ROUNDS // 4))
