"""The addresses that the broker advertises to clients, slaves and name servers.

Owns the rule for them: the configured IP address or the one that peers can reach, and the
listening port.
"""

from __future__ import annotations

from roquet.broker.config import BrokerConfig
from roquet.runtime.network import advertised_ip, joined

__all__ = ["AdvertisedAddresses"]


class AdvertisedAddresses:
    """The addresses of a broker.

    Args:
        config: The broker's settings.
        port: The listening port; 0 until the broker listens.

    Attributes:
        port: As above, set when the broker listens.
        ha_port: The port for slaves, set when the broker listens there; 0 for the one above.

    Example:
        >>> AdvertisedAddresses(BrokerConfig(), port=10911).ha_address
        '127.0.0.1:10912'
    """

    def __init__(self, config: BrokerConfig, port: int = 0) -> None:
        self.port = port
        self.ha_port = 0
        self._config = config

    @property
    def address(self) -> str:
        """The address for clients."""
        return self._joined(self._config.broker_ip1, self.port)

    @property
    def ha_address(self) -> str:
        """The address for slaves: by default the port above the one for clients."""
        return self._joined(self._config.broker_ip2, self.ha_port or self.port + 1)

    def _joined(self, ip: str, port: int) -> str:
        return joined(advertised_ip(ip or self._config.bind_address), port)
