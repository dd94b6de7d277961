"""The settings that all producers, consumers and admins of one client share.

Owns :class:`ClientOptions`. The defaults are those of Apache RocketMQ's Java client.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct, structs

from roquet.client.compression import BODY_BYTES_MAX
from roquet.errors import ConfigError
from roquet.remoting.bodies.client import MessageModel
from roquet.remoting.client import split_address
from roquet.remoting.frame import SerializeType
from roquet.remoting.tls import ClientTlsConfig

__all__ = ["ClientOptions"]

BROADCASTING_INSTANCE = "DEFAULT"
"""Java's default instance name."""

_SECRETS = frozenset({"secret_key", "security_token", "tls"})
_SCHEME = re.compile(r"[a-z]+://", re.IGNORECASE)


class ClientOptions(Struct, frozen=True, kw_only=True):
    """How a client finds and talks to a cluster.

    Attributes:
        namesrv: The name servers: ``host:port``, several separated by semicolons, or a sequence.
        instance_name: Clients of one process with the same name share connections and heartbeats;
            if empty, a unique name is generated.
        client_ip: The address in the client id; if empty, it is detected.
        unit_name: The unit, in a cluster with several units.
        namespace: The namespace of topics and groups on the wire.
        access_key: Identifies the signer of the requests.
        secret_key: The key for the signatures.
        security_token: A temporary token that belongs to the keys.
        tls: The TLS settings; ``None`` for plain text.
        request_timeout_ms: How long an ordinary request may take.
        poll_namesrv_ms: How often routes are refreshed.
        heartbeat_ms: How often heartbeats are sent to brokers.
        persist_offsets_ms: How often consumers' offsets are stored.
        default_topic_queues: How many queues a topic gets when its first message creates it.
        max_body_bytes: The maximum size of a decompressed body; reading the body of a message that
            exceeds it raises an error.
        vip_channel: Whether sends go to the broker's second port, which is two below the first.
        serialize: The encoding of headers.

    Example:
        >>> ClientOptions(namesrv="10.0.0.1:9876;10.0.0.2:9876").namesrv_addresses
        ('10.0.0.1:9876', '10.0.0.2:9876')
    """

    namesrv: str | Sequence[str]
    instance_name: str = ""
    client_ip: str = ""
    unit_name: str = ""
    namespace: str = ""
    access_key: str = ""
    secret_key: str = ""
    security_token: str = ""
    tls: ClientTlsConfig | None = None
    request_timeout_ms: int = 3_000
    poll_namesrv_ms: int = 30_000
    heartbeat_ms: int = 30_000
    persist_offsets_ms: int = 5_000
    default_topic_queues: int = 4
    max_body_bytes: int = BODY_BYTES_MAX
    vip_channel: bool = False
    serialize: SerializeType = SerializeType.JSON

    @property
    def namesrv_addresses(self) -> tuple[str, ...]:
        """The addresses of the name servers.

        Example:
            options = ClientOptions(namesrv="10.0.0.1:9876;10.0.0.2:9876")
            assert options.namesrv_addresses == ("10.0.0.1:9876", "10.0.0.2:9876")
        """
        parts = self.namesrv.split(";") if isinstance(self.namesrv, str) else self.namesrv
        found = (_SCHEME.sub("", part.strip()) for part in parts)
        return tuple(dict.fromkeys(part for part in found if part))

    @classmethod
    def of(cls, client: str | Sequence[str] | ClientOptions) -> ClientOptions:
        """Return checked settings, from name server addresses or from settings.

        Raises:
            ConfigError: An address, a time or a pair of keys cannot be used.

        Example:
            >>> ClientOptions.of("127.0.0.1:9876").namesrv_addresses
            ('127.0.0.1:9876',)
        """
        found = client if isinstance(client, ClientOptions) else cls(namesrv=client)
        found.check()
        return found

    def for_model(self, model: MessageModel) -> ClientOptions:
        """Return the settings of a consumer: a broadcasting one needs a fixed name for its offsets.

        Example:
            >>> options = ClientOptions(namesrv="127.0.0.1:9876")
            >>> options.for_model(MessageModel.BROADCASTING).instance_name
            'DEFAULT'
        """
        if model is MessageModel.BROADCASTING and not self.instance_name:
            return structs.replace(self, instance_name=BROADCASTING_INSTANCE)
        return self

    def normalized(self) -> ClientOptions:
        """Return the same settings, with the name servers in a canonical form.

        Example:
            one = ClientOptions(namesrv="10.0.0.1:9876;10.0.0.2:9876")
            other = ClientOptions(namesrv=["10.0.0.1:9876", "10.0.0.2:9876"])
            assert one.normalized() == other.normalized()
        """
        return structs.replace(self, namesrv=self.namesrv_addresses)

    def check(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: An address, a time or a pair of keys cannot be used.

        Example:
            try:
                ClientOptions(namesrv="").check()
            except ConfigError as error:
                print(error.message)
        """
        if not self.namesrv_addresses:
            raise ConfigError(
                "No name server is given", hint="Write host:port, several separated by semicolons."
            )
        for address in self.namesrv_addresses:
            split_address(address)
        for name in (
            "request_timeout_ms",
            "poll_namesrv_ms",
            "heartbeat_ms",
            "persist_offsets_ms",
            "default_topic_queues",
            "max_body_bytes",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", hint="It must be 1 or more.")
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError(
                "An access key and a secret key go together", hint="Set both or neither."
            )
        if "@" in self.instance_name:
            raise ConfigError(
                f"The instance name {self.instance_name!r} contains an @",
                hint="The @ separates the parts of a client id.",
            )

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={'***' if name in _SECRETS else repr(value)}"
            for name in self.__struct_fields__
            if (value := getattr(self, name))
        )
        return f"ClientOptions({shown})"
