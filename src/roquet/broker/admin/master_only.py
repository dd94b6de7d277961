"""Changes of topics and groups, which a slave refuses.

A slave copies these tables from its master, so a change made here would be lost with the next copy.
Upstream has the check and the remark, and accepts the change nevertheless.
"""

from __future__ import annotations

from roquet.broker.components import BrokerComponents
from roquet.remoting.hooks import RequestRefused

__all__ = ["check_is_master"]

_REMARK = (
    "Can't modify topic or subscription group from slave broker, "
    "please execute it from master broker."
)


def check_is_master(components: BrokerComponents) -> None:
    """Refuse a request on a slave.

    Raises:
        RequestRefused: This broker is a slave.
    """
    if components.ha.is_slave:
        raise RequestRefused(_REMARK)
