"""The life of the thread: the program's end, control-C, forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.sync import (
    Admin,
    ConsumeFromWhere,
    Message,
    Producer,
)
from roquet.testing.background import BackgroundBroker, background_broker

TOPIC = "Orders"
ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
HEADER = f"""
import os, signal, sys, threading
from roquet.sync import *
namesrv = sys.argv[1]
FIRST = {ConsumeFromWhere.__name__}.CONSUME_FROM_FIRST_OFFSET
"""


@pytest.fixture
def server() -> Iterator[BackgroundBroker]:
    with background_broker() as running:
        running.create_topic(TOPIC, queues=1)
        with Producer(running.namesrv, group="senders") as producer:
            producer.send(Message(TOPIC, b"paid"))
        yield running


def started(server: BackgroundBroker, program: str) -> subprocess.Popen[str]:
    code = HEADER + textwrap.dedent(program)
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, server.namesrv],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(server: BackgroundBroker, program: str) -> str:
    with started(server, program) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    return out


def committed(server: BackgroundBroker, group: str) -> int | None:
    with Admin(server.namesrv) as admin, Producer(server.namesrv, group="asking") as asking:
        (queue,) = asking.queues(TOPIC)
        return admin.offsets.committed(group, queue)


def test_open_clients_are_closed_at_exit(server: BackgroundBroker) -> None:
    out = run(
        server,
        """
        done = threading.Event()

        def handle(message):
            print(message.body.decode())
            done.set()

        consumer = PushConsumer(namesrv, group="billing", handler=handle, consume_from=FIRST)
        consumer.subscribe("Orders")
        consumer.start()
        Producer(namesrv, group="left-open").start()
        done.wait()
        """,
    )
    assert out == "paid\n"
    assert committed(server, "billing") == 1


def test_threads_continue_after_the_main_thread_has_ended(server: BackgroundBroker) -> None:
    out = run(
        server,
        """
        producer = Producer(namesrv, group="left-open")
        producer.start()

        def after_main():
            threading.main_thread().join()
            with LitePullConsumer(namesrv, group="readers", consume_from=FIRST) as consumer:
                consumer.subscribe("Orders")
                producer.send(Message("Orders", next(consumer).body.upper()))
                print(next(consumer).body.decode())

        threading.Thread(target=after_main).start()
        """,
    )
    assert out == "PAID\n"
    assert committed(server, "readers") == 2


def test_the_first_use_may_follow_the_end_of_the_main_thread(server: BackgroundBroker) -> None:
    out = run(
        server,
        """
        def after_main():
            threading.main_thread().join()
            producer = Producer(namesrv, group="left-open")
            producer.start()
            print(producer.send(Message("Orders", b"late")).status.name)

        threading.Thread(target=after_main).start()
        """,
    )
    assert out == "SEND_OK\n"


def test_a_program_that_only_imports_has_no_thread(server: BackgroundBroker) -> None:
    program = """
    Producer(namesrv, group="never-started")
    consumer = PushConsumer(namesrv, group="never-started", handler=print)
    consumer.subscribe("Orders")
    print(threading.active_count())
    """
    assert run(server, program) == "1\n"


def test_control_c_while_waiting_leaves_nothing_running(server: BackgroundBroker) -> None:
    program = """
    import asyncio
    from roquet.sync.loop import _process

    def waiting():
        tasks = _process.loop().call(asyncio.all_tasks)
        return sum("__next__" in each.get_coro().__qualname__ for each in tasks)

    def interrupt():
        while not waiting():
            pass
        os.kill(os.getpid(), signal.SIGINT)

    with LitePullConsumer(namesrv, group="readers", consume_from=FIRST) as consumer:
        consumer.subscribe("Orders")
        print(next(consumer).body.decode(), flush=True)
        try:
            threading.Thread(target=interrupt).start()
            next(consumer)
        except KeyboardInterrupt:
            print("interrupted", waiting())
    print([each.name for each in threading.enumerate() if each.name.startswith("consume")])
    """
    assert run(server, program) == "paid\ninterrupted 0\n[]\n"
    assert committed(server, "readers") == 1


def test_control_c_ends_a_program_that_waits(server: BackgroundBroker) -> None:
    program = """
    consumer = PushConsumer(namesrv, group="billing", handler=lambda message: None)
    consumer.subscribe("Orders")
    with consumer:
        print("runs", flush=True)
        threading.Event().wait()
    """
    with started(server, program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in err
    with Admin(server.namesrv) as admin:
        assert admin.clients.consumer_ids("billing") == []


def test_a_fork_starts_its_own_thread(server: BackgroundBroker) -> None:
    program = """
    import warnings
    from roquet.errors import WrongThread

    warnings.simplefilter("ignore", DeprecationWarning)
    idle = Producer(namesrv, group="of-the-child")
    with Producer(namesrv, group="of-the-parent") as producer:
        producer.send(Message("Orders", b"parent"))
        child = os.fork()
        if child == 0:
            try:
                producer.send(Message("Orders", b"refused"))
            except WrongThread as error:
                print(error.message, flush=True)
            with idle:
                idle.send(Message("Orders", b"child"))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        producer.send(Message("Orders", b"parent again"))
    """
    out = run(server, program)
    assert out == "This belongs to the process that this one was forked from\n"
    bodies = [message.body for message in server.messages(TOPIC)]
    assert bodies == [b"paid", b"parent", b"child", b"parent again"]
