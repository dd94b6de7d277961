"""The services of a broker, whose timers a test moves."""

from __future__ import annotations

import msgspec

from roquet.broker.message_services import MessageServices
from tests.unit.broker.processor.send_kit import SendBroker
from tests.unit.broker.service.manual_timers import ManualTimers


def services(made: SendBroker, timers: ManualTimers) -> MessageServices:
    return MessageServices(msgspec.structs.replace(made.parts, timers=timers))
