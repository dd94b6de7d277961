"""Where the master of a slave is, as name servers say.

Owns what each name server last said: the master's addresses, or that there is none. A name server
that does not respond says nothing. The last known address stays when the master has left, since
it may come back there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["MasterAddress"]

log = logging.getLogger(__name__)


class _Said(NamedTuple):
    address: str
    ha_address: str


class MasterAddress:
    """The master.

    Attributes:
        address: Its address for clients; empty if it was never known.
        ha_address: Its address for slaves; empty if it was never known.
        is_listed: Whether a name server lists it now; true before any has responded.
        changed: Called when one of these has changed.
        look: Asks the name servers for the master soon; set by those who watch it.

    Example:
        >>> master = MasterAddress()
        >>> master.said("ns-1", "h:1", "h:2")
        >>> master.said("ns-2", "", "")
        >>> master.address, master.ha_address, master.is_listed
        ('h:1', 'h:2', True)
        >>> master.said("ns-1", "", "")
        >>> master.address, master.is_listed
        ('h:1', False)
    """

    def __init__(self) -> None:
        self.address = ""
        self.ha_address = ""
        self.is_listed = True
        self.changed: list[Callable[[], None]] = []
        self.look: Callable[[], None] = _not_watched
        self._said: dict[str, _Said] = {}

    def said(self, namesrv: str, address: str, ha_address: str) -> None:
        """Note what a name server said.

        Args:
            namesrv: The name server.
            address: The master's address for clients; empty if it is not registered there.
            ha_address: Its address for slaves; empty if it was not part of the response.
        """
        known = self._said.get(namesrv)
        if not ha_address and known is not None and known.address == address:
            ha_address = known.ha_address
        self._said[namesrv] = _Said(address, ha_address)
        self._decide()

    def found_ha_address(self, address: str, ha_address: str) -> None:
        """Note the address for slaves of the master at ``address``, which it gave itself."""
        for namesrv, said in self._said.items():
            if said.address == address:
                self._said[namesrv] = _Said(address, ha_address)
        self._decide()

    def forget(self, namesrv: str) -> None:
        """Discard what a name server said that is no longer used."""
        if self._said.pop(namesrv, None) is not None and self._said:
            self._decide()

    def _decide(self) -> None:
        before = self.address, self.ha_address, self.is_listed
        listed = [each for each in self._said.values() if each.address]
        self.is_listed = bool(listed)
        if listed and not any(each.address == self.address for each in listed):
            self.address, self.ha_address = listed[0]
            log.info("The master is at %s, for slaves at %s.", self.address, self.ha_address or "?")
        for each in listed:
            if each.address == self.address and each.ha_address:
                self.ha_address = each.ha_address
                break
        if before != (self.address, self.ha_address, self.is_listed):
            for listener in list(self.changed):
                listener()


def _not_watched() -> None:
    """A master has no master."""
