"""What all producers, consumers and admins of one client share, as settings.

Owns :class:`ClientOptions`. The defaults are those of Apache RocketMQ's Java client.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct, structs

from roquet.errors import ConfigError
from roquet.remoting.bodies.client import MessageModel
from roquet.remoting.client import split_address
from roquet.remoting.frame import SerializeType
from roquet.remoting.tls import ClientTlsConfig

__all__ = ["ClientOptions"]

BROADCASTING_INSTANCE = "DEFAULT"
"""Java's name of an instance that has none."""

_SECRETS = frozenset({"secret_key", "security_token", "tls"})
_SCHEME = re.compile(r"[a-z]+://", re.IGNORECASE)


class ClientOptions(Struct, frozen=True, kw_only=True):
    """How a client finds and talks to a cluster.

    Attributes:
        namesrv: The name servers: ``host:port``, several with semicolons, or a sequence.
        instance_name: Clients of one process with the same name share connections and heartbeats;
            empty makes a name that no other client has.
        client_ip: The address that the client says it has; empty finds one.
        unit_name: The unit of a cluster of several rooms.
        namespace: What topics and groups are wrapped in on the wire.
        access_key: Who signs the requests.
        secret_key: What they are signed with.
        security_token: A temporary token that goes with the keys.
        tls: How to speak TLS; ``None`` for plain text.
        request_timeout_ms: How long an ordinary request may take.
        poll_namesrv_ms: How often routes are asked for again.
        heartbeat_ms: How often brokers are told who is here.
        persist_offsets_ms: How often consumers' progress is stored.
        default_topic_queues: How many queues a topic gets that the first message makes.
        vip_channel: Whether sends go to the broker's second port, which is two less.
        serialize: How headers are written.

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
    vip_channel: bool = False
    serialize: SerializeType = SerializeType.JSON

    @property
    def namesrv_addresses(self) -> tuple[str, ...]:
        """The name servers, one by one.

        Example:
            options = ClientOptions(namesrv="10.0.0.1:9876;10.0.0.2:9876")
            assert options.namesrv_addresses == ("10.0.0.1:9876", "10.0.0.2:9876")
        """
        parts = self.namesrv.split(";") if isinstance(self.namesrv, str) else self.namesrv
        found = (_SCHEME.sub("", part.strip()) for part in parts)
        return tuple(dict.fromkeys(part for part in found if part))

    @classmethod
    def of(cls, client: str | Sequence[str] | ClientOptions) -> ClientOptions:
        """All settings, when name servers or all settings are given; they are checked.

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
        """The settings of a consumer: one that broadcasts finds its offsets again by its name.

        Example:
            >>> options = ClientOptions(namesrv="127.0.0.1:9876")
            >>> options.for_model(MessageModel.BROADCASTING).instance_name
            'DEFAULT'
        """
        if model is MessageModel.BROADCASTING and not self.instance_name:
            return structs.replace(self, instance_name=BROADCASTING_INSTANCE)
        return self

    def normalized(self) -> ClientOptions:
        """The same settings, with the name servers written in one way.

        Example:
            one = ClientOptions(namesrv="10.0.0.1:9876;10.0.0.2:9876")
            other = ClientOptions(namesrv=["10.0.0.1:9876", "10.0.0.2:9876"])
            assert one.normalized() == other.normalized()
        """
        return structs.replace(self, namesrv=self.namesrv_addresses)

    def check(self) -> None:
        """Refuse what cannot work.

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
                "No name server is given", hint="Write host:port, several with semicolons between."
            )
        for address in self.namesrv_addresses:
            split_address(address)
        for name in (
            "request_timeout_ms",
            "poll_namesrv_ms",
            "heartbeat_ms",
            "persist_offsets_ms",
            "default_topic_queues",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", hint="It must be 1 or more.")
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError(
                "An access key and a secret key go together", hint="Give both, or none."
            )
        if "@" in self.instance_name:
            raise ConfigError(
                f"The instance name {self.instance_name!r} holds an @",
                hint="The parts of a client id are joined by it.",
            )

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={'***' if name in _SECRETS else repr(value)}"
            for name in self.__struct_fields__
            if (value := getattr(self, name))
        )
        return f"ClientOptions({shown})"
