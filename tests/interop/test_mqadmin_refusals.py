"""What administrators may not do, requested from Roquet and from Apache RocketMQ in the same state.

Both have to respond with the same code and the same remark, and Roquet must not have changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode
from tests.interop.agent import Outgoing
from tests.interop.asker import Ask, Asker
from tests.interop.cluster import APACHE, ROQUET
from tests.interop.mqadmin_side import BROKER_NAME, Side
from tests.interop.refusals import GROUP, MESSAGES, QUEUES, REFUSALS, SEND_BACK_BEYOND, TOPIC
from tests.patience import PATIENT

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("mqadmin")]

TABLES = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_BROKER_CONFIG,
)
"""What shows that nothing changed."""


class Outcome(NamedTuple):
    """The outcome of a request; `changed` names the tables that changed."""

    code: int
    remark: str | None
    ext_fields: dict[str, str]
    changed: tuple[str, ...]


Outcomes = Mapping[str, Mapping[str, Outcome]]
"""Those of each side by the name of the request."""


async def tables(asker: Asker) -> dict[str, bytes]:
    return {code.name: (await asker.ask(Ask(code, ""))).body for code in TABLES}


async def ask_all(address: str) -> dict[str, Outcome]:
    """All outcomes at one broker."""
    outcomes: dict[str, Outcome] = {}
    async with RemotingClient(config=PATIENT) as client:
        asker = Asker(await client.connect(address))
        await asker.ask(SEND_BACK_BEYOND)
        before = await tables(asker)
        for request in REFUSALS:
            answer = await asker.ask(request)
            after = await tables(asker)
            changed = tuple(name for name in after if after[name] != before[name])
            outcomes[request.name] = Outcome(
                answer.code, answer.remark, answer.ext_fields or {}, changed
            )
            before = after
    return outcomes


@pytest.fixture(scope="module")
def outcomes(twins: Sequence[Side]) -> Outcomes:
    """Both sides get a topic with messages and a group, then all requests."""
    found: dict[str, dict[str, Outcome]] = {each.name: {} for each in REFUSALS}
    for side in twins:
        side.run(["updateTopic", "-b", "{broker}", "-t", TOPIC, "-r", "2", "-w", "2"])
        side.run(["updateSubGroup", "-b", "{broker}", "-g", GROUP])
        producer = side.agent.producer(side.cluster.namesrv, "refusals_producers")
        messages = [Outgoing("x", queue=(BROKER_NAME, i % QUEUES)) for i in range(MESSAGES)]
        producer.send(TOPIC, messages, "queue")
        producer.stop()
        side.cluster.wait_stored(TOPIC, MESSAGES)
        for name, outcome in asyncio.run(ask_all(side.values["broker"])).items():
            found[name][side.kind] = outcome
    return found


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: each.name)
def test_same_refusal(outcomes: Outcomes, refusal: Ask) -> None:
    apache, roquet = outcomes[refusal.name][APACHE], outcomes[refusal.name][ROQUET]
    assert not roquet.changed
    if refusal.differs:
        assert roquet[:3] != apache[:3], "they no longer differ"
    else:
        assert roquet[:3] == apache[:3]
