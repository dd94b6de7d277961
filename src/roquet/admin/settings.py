"""Settings of brokers and name servers, while they run.

Owns :class:`Settings`. Keys and values are those of upstream's files.
"""

from __future__ import annotations

from collections.abc import Mapping

from roquet.admin.calls import Calls
from roquet.admin.results import ServerResults
from roquet.errors import ConfigError
from roquet.model.properties_text import format_properties, parse_properties
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand

__all__ = ["Settings"]


class Settings:
    """Settings of servers; ``admin.settings``.

    Example:
        found = await admin.settings.brokers()
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def brokers(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> ServerResults[dict[str, str]]:
        """Return the settings of brokers, by key.

        Example:
            found = await admin.settings.brokers(broker="dev")
            name = found.answers["dev"]["brokerName"]
        """
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        return await self._calls.gather(targets, self._of_broker)

    async def _of_broker(self, address: str) -> dict[str, str]:
        return _settings(await self._calls.ask(address, RequestCode.GET_BROKER_CONFIG))

    async def set_brokers(
        self,
        settings: Mapping[str, str],
        *,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Change settings of brokers, all or none of them; returns the brokers that did.

        Raises:
            ConfigError: No setting is given, or one cannot be encoded.
            PermissionRefused: The setting may not be changed while the broker runs.
            BrokersFailed: Some brokers refused; the others have changed theirs.

        Example:
            await admin.settings.set_brokers({"fileReservedTime": "48"}, broker="dev")
        """
        body = _text(settings)
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        told = await self._calls.gather(
            targets,
            lambda address: self._calls.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body),
        )
        return list(told.complete("Changing settings"))

    async def name_servers(self) -> ServerResults[dict[str, str]]:
        """Return the settings of all name servers, by key.

        Example:
            found = await admin.settings.name_servers()
        """
        found = await self._calls.name_servers(RequestCode.GET_NAMESRV_CONFIG)
        answers = {name: _settings(answer) for name, answer in found.answers.items()}
        return ServerResults(answers=answers, failures=found.failures)

    async def set_name_servers(self, settings: Mapping[str, str]) -> list[str]:
        """Change settings of all name servers; returns those that did.

        Raises:
            ConfigError: No setting is given, or one cannot be encoded.
            PermissionRefused: The setting may not be changed while the name server runs.
            BrokersFailed: Some refused; the others have changed theirs.

        Example:
            await admin.settings.set_name_servers({"orderMessageEnable": "false"})
        """
        body = _text(settings)
        told = await self._calls.name_servers(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
        return list(told.complete("Changing settings"))


def _settings(answer: RemotingCommand) -> dict[str, str]:
    return parse_properties(answer.body.decode("utf-8", "replace"))


def _text(settings: Mapping[str, str]) -> bytes:
    if not settings:
        raise ConfigError("No setting is given", hint="Pass at least one key and its value.")
    for key, value in settings.items():
        if not key.strip() or any(mark in key for mark in "=:\\\r\n \t") or "\n" in value:
            raise ConfigError(
                f"The setting {key!r} cannot be written",
                detail=f"value {value!r}",
                hint="A key is one word, a value one line.",
            )
    escaped = {key: value.replace("\\", "\\\\") for key, value in settings.items()}
    return format_properties(escaped).encode()
