"""The settings of a broker: where they come from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.settings import (
    BROKER_SETTINGS,
    BrokerSettings,
    broker_properties,
    load_broker_settings,
)
from roquet.broker.settings_table import IMPORTANT_KEYS, UNSUPPORTED, WITHOUT_EFFECT
from roquet.errors import ConfigError
from roquet.model.properties_text import format_properties, parse_properties
from roquet.namesrv.config import NamesrvConfig
from roquet.remoting.tls import ClientAuth, TlsMode
from roquet.remoting.tls_settings import TlsSettings
from roquet.runtime.network import host_name
from roquet.runtime.settings import Setting, changed, keys_of
from roquet.store.config import FlushDiskType, MessageStoreConfig
from tests.unit.broker import upstream_keys

BROKER_CLASSES = (
    "BrokerConfig",
    "BrokerIdentity",
    "MessageStoreConfig",
    "NettyServerConfig",
    "NettyClientConfig",
    "AuthConfig",
)


def load(
    tmp_path: Path,
    text: str = "",
    *,
    flags: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
) -> BrokerSettings:
    path = tmp_path / "broker.conf"
    path.write_text(text, "utf-8")
    return load_broker_settings(path, flags or {}, environment=environment)


def refusal(tmp_path: Path, text: str, **more: dict[str, str]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **more)
    return caught.value


# -- which keys there are -----------------------------------------------------------------------


@pytest.mark.parametrize("name", BROKER_CLASSES)
def test_every_key_of_upstream_is_known(name: str) -> None:
    table = BROKER_SETTINGS
    known = {*table.with_effect, *table.without_effect, *table.unsupported}
    assert set(upstream_keys.UPSTREAM_KEYS[name]) - known == set()


def test_a_key_has_one_meaning() -> None:
    groups = [group.keys for group in WITHOUT_EFFECT]
    without_effect = [key for group in groups for key in group]
    assert len(without_effect) == len(set(without_effect))
    unsupported = [each.key for each in UNSUPPORTED]
    assert BROKER_SETTINGS.with_effect & {*without_effect, *unsupported} == set()
    assert set(without_effect) & set(unsupported) == set()


def test_keys_without_effect_are_keys_of_upstream() -> None:
    theirs = {key for name in BROKER_CLASSES for key in upstream_keys.UPSTREAM_KEYS[name]}
    ours = {key for group in WITHOUT_EFFECT for key in group.keys} | {e.key for e in UNSUPPORTED}
    assert ours - theirs == set()


def test_the_important_keys_are_those_marked_upstream() -> None:
    effective = {*keys_of(BrokerConfig), *keys_of(MessageStoreConfig)}
    assert effective & set(upstream_keys.IMPORTANT_KEYS) == IMPORTANT_KEYS


# -- a file -------------------------------------------------------------------------------------


def test_upstreams_own_file_is_read(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\n"
        "deleteWhen = 04\nfileReservedTime = 48\nbrokerRole = ASYNC_MASTER\n"
        "flushDiskType = SYNC_FLUSH\nsendMessageThreadPoolNums=4\n",
    )
    assert settings.config.broker_name == "broker-a"
    assert settings.store.file_reserved_hours == 48
    assert settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert settings.without_effect == ["sendMessageThreadPoolNums"]
    assert settings.warnings == []


def test_the_defaults_need_no_file() -> None:
    settings = load_broker_settings(None, {})
    assert settings.config == BrokerConfig(broker_name=host_name())
    assert settings.store == MessageStoreConfig()
    assert settings.warnings == []


def test_a_bad_value_is_reported_with_its_line(tmp_path: Path) -> None:
    error = refusal(tmp_path, "# ports\nlistenPort = 70000\n")
    assert error.exit_code == 2
    assert error.message == "The value of listenPort cannot be used."
    assert error.detail == (
        f"{tmp_path / 'broker.conf'}, line 2: '70000', expected a whole number from 0 to 65535"
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flushDiskType=ASYNC", "one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("autoCreateTopicEnable=yes", "true or false"),
        ("maxMessageSize=4MB", "a whole number from 1 to 2147483647"),
        ("maxMessageSize=2147483648", "a whole number from 1 to 2147483647"),
        ("brokerId=-1", "a whole number from 0 to 9223372036854775807"),
        ("brokerPermission=16", "a whole number from 0 to 7"),
        ("transactionTimeOut=9223372036854775807", "a whole number from 1 to 3153600000000"),
        ("tls.server.mode=strict", "one of disabled, permissive, enforcing"),
    ],
)
def test_errors_name_what_is_expected(tmp_path: Path, line: str, expected: str) -> None:
    assert (refusal(tmp_path, line).detail or "").endswith(f"expected {expected}")


NUMBERS = [
    (kind, each.encode_name)
    for kind in (BrokerConfig, MessageStoreConfig, NamesrvConfig)
    for each in msgspec.structs.fields(kind)
    if isinstance(msgspec.inspect.type_info(each.type), msgspec.inspect.IntType)
]


@pytest.mark.parametrize("digits", [20, 400, 5_000])
def test_every_number_has_a_range(digits: int) -> None:
    for kind, key in NUMBERS:
        with pytest.raises(ConfigError) as caught:
            changed(kind(), [Setting(key, "9" * digits)])
        error = caught.value
        assert key in error.message
        assert "9" * 20 in (error.detail or "")
        assert "expected a whole number from" in (error.detail or "")
        assert len(str(error)) < 300


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("deleteWhen=" + "9" * 5_000, "holds '999"),
        ("deleteWhen=004", "holds '004'"),
        ("messageDelayLevel=1s " + "9" * 5_000 + "d", "the whole value is '1s 999"),
        ("messageDelayLevel=1s 5x", "the whole value is '1s 5x'"),
        ("maxIndexNum=2000000000", "2000000000 entries are 40020000040 bytes"),
    ],
)
def test_numbers_inside_texts_have_ranges(tmp_path: Path, line: str, expected: str) -> None:
    error = refusal(tmp_path, line)
    assert line.partition("=")[0] in error.message
    assert "line 1" in (error.detail or "")
    assert expected in (error.detail or "")
    assert len(str(error)) < 500


def test_errors_of_the_stores_own_check_name_the_line(tmp_path: Path) -> None:
    error = refusal(tmp_path, "\n\nmappedFileSizeConsumeQueue=30\n")
    assert "line 3" in (error.detail or "")
    assert "not a multiple of 20" in (error.detail or "")


def test_an_unknown_key_is_a_warning_with_the_nearest_name(tmp_path: Path) -> None:
    settings = load(tmp_path, "brokerRol=ASYNC_MASTER\nxyzzy=1\n")
    first, second = settings.warnings
    assert first.message == "There is no setting 'brokerRol'."
    assert (first.detail or "").endswith("line 1")
    assert first.hint == "Did you mean brokerRole?"
    assert second.hint is None


@pytest.mark.parametrize(
    ("line", "feature"),
    [
        ("enableDLegerCommitLog=true", "DLedger"),
        ("enableControllerMode=true", "controller"),
        ("allAckInSyncStateSet=true", "controller"),
        ("isInBrokerContainer=true", "containers"),
        ("aclEnable=true", "access control"),
        ("authenticationEnabled=TRUE", "access control"),
        ("authorizationEnabled=true", "access control"),
        ("timerWheelEnable=true", "timed messages"),
        ("recallMessageEnable=true", "timed messages"),
        ("timerInterceptDelayLevel=true", "timed messages"),
        ("defaultMessageRequestMode=POP", "POP"),
        ("popConsumerKVServiceEnable=true", "POP"),
        ("metricsExporterType=PROM", "metrics"),
        ("enableLmq=true", "light message queue"),
        ("storeType=defaultRocksDB", "RocksDB"),
        ("transRocksDBEnable=true", "RocksDB"),
        ("useTLS=true", "plain text"),
        ("tls.enable=true", "plain text"),
        ("storePathCommitLog=elsewhere", "commitlog"),
        ("readOnlyCommitLogStorePaths=a,b", "stored there"),
    ],
)
def test_enabling_a_missing_feature_is_refused(tmp_path: Path, line: str, feature: str) -> None:
    error = refusal(tmp_path, line)
    assert error.code == "config_unsupported"
    assert "line 1" in (error.detail or "")
    assert feature in f"{error.detail} {error.hint}"
    assert error.hint


def test_disabling_a_missing_feature_is_accepted(tmp_path: Path) -> None:
    lines = [f"{each.key}={text}" for each in UNSUPPORTED for text in each.accepted]
    settings = load(tmp_path, "\n".join([*lines, "aclEnable=False", "useTLS=false"]))
    assert (settings.warnings, settings.without_effect) == ([], [])


def test_tuning_a_missing_feature_is_a_warning_that_names_it(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "timerMaxDelaySec=60\npreferredLeaderId=1\ntimerPrecisionMs=100\nuseABSLock=true\n",
    )
    told = [(each.message, each.detail) for each in settings.warnings]
    place = tmp_path / "broker.conf"
    assert told == [
        (
            "This version has no timed messages: "
            "timerMaxDelaySec, timerPrecisionMs have no effect.",
            f"{place}, line 1; {place}, line 3",
        ),
        (
            "This version has no controller mode: preferredLeaderId has no effect.",
            f"{place}, line 2",
        ),
    ]
    assert settings.without_effect == ["useABSLock"]


def test_the_default_log_folder_may_be_named(tmp_path: Path) -> None:
    root = tmp_path / "store"
    settings = load(tmp_path, f"storePathRootDir={root}\nstorePathCommitLog={root / 'commitlog'}\n")
    assert settings.config.store_root == str(root)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        load_broker_settings(tmp_path / "none.conf", {})
    assert "none.conf: No such file or directory" in (caught.value.detail or "")


def test_a_file_that_is_a_link_is_read(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("brokerName=linked\n")
    (tmp_path / "link").symlink_to("real")
    assert load_broker_settings(tmp_path / "link", {}).config.broker_name == "linked"


# -- name servers -------------------------------------------------------------------------------


def test_the_order_of_name_servers(tmp_path: Path) -> None:
    file = "namesrvAddr=file:1\nrocketmq.namesrv.addr=property:1\n"
    environment = {"NAMESRV_ADDR": "env:1", "rocketmq.namesrv.addr": "envproperty:1"}
    flags = {"namesrvAddr": "flag:1"}

    def chosen(text: str, **more: dict[str, str]) -> str:
        return load(tmp_path, text, **more).config.namesrv_address

    assert chosen(file, flags=flags, environment=environment) == "flag:1"
    assert chosen(file, environment=environment) == "file:1"
    rest = "rocketmq.namesrv.addr=property:1\n"
    assert chosen(rest, environment=environment) == "env:1"
    assert chosen(rest, environment={"rocketmq.namesrv.addr": "envproperty:1"}) == "property:1"
    assert chosen("", environment={"rocketmq.namesrv.addr": "envproperty:1"}) == "envproperty:1"
    assert chosen("namesrvAddr=\n", environment={"NAMESRV_ADDR": "env:1"}) == "env:1"
    assert chosen("") == ""


def test_several_name_servers(tmp_path: Path) -> None:
    settings = load(tmp_path, "namesrvAddr=a:9876; [::1]:9877;\n")
    assert settings.config.namesrv_address == "a:9876;[::1]:9877"


@pytest.mark.parametrize("address", ["localhost", "a:b", "a:9876;b", ":9876", "a:0", "a:65536"])
def test_a_bad_name_server_address_is_refused_in_upstreams_words(
    tmp_path: Path, address: str
) -> None:
    error = refusal(tmp_path, "", flags={"namesrvAddr": address})
    assert error.message == (
        f"The Name Server Address[{address}] illegal, please set it as follows, "
        '"127.0.0.1:9876;192.168.0.1:9876"'
    )
    assert error.detail == "the command line"
    assert error.exit_code == 2


def test_the_address_server_is_built_from_its_host(tmp_path: Path) -> None:
    config = load(tmp_path, "rmqAddressServerDomain=localhost:80\n").config
    assert (config.address_server_domain, config.address_server_subgroup) == (
        "localhost:80",
        "nsaddr",
    )


# -- identity and place -------------------------------------------------------------------------


def test_a_slave_has_an_id(tmp_path: Path) -> None:
    error = refusal(tmp_path, "brokerRole=SLAVE\nbrokerId=0\n")
    assert error.message == "Slave's brokerId must be > 0"
    assert error.exit_code == 2


def test_a_slave_keeps_its_broker_id(tmp_path: Path) -> None:
    settings = load(tmp_path, "brokerRole=SLAVE\nbrokerId=2\nhaMasterAddress=10.0.0.1:10912\n")
    assert settings.config.broker_id == 2
    assert settings.store.ha_master_address == "10.0.0.1:10912"
    assert settings.warnings == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("haMasterAddress=10.0.0.1", "no address"),
        ("listenPort=65535", "no room for the port of slaves"),
        ("brokerRole=SYNC_MASTER\ntls.server.mode=enforcing", "Slaves cannot reach this master"),
        ("haHousekeepingInterval=5000", "not longer than haSendHeartbeatInterval"),
        ("haTransferBatchSize=4194293", "haTransferBatchSize is too large"),
    ],
)
def test_impossible_replication_settings_are_refused(tmp_path: Path, text: str, word: str) -> None:
    assert word in refusal(tmp_path, text).message


def test_a_masters_id_becomes_0(tmp_path: Path) -> None:
    settings = load(tmp_path, "brokerId=3\n")
    assert settings.config.broker_id == 0
    assert [each.message for each in settings.warnings] == ["A master's brokerId is 0, not 3."]


@pytest.mark.parametrize(
    ("text", "bound", "warned"),
    [
        ("", "127.0.0.1", False),
        ("brokerIP1=127.0.0.1", "127.0.0.1", False),
        ("brokerIP1=::1", "127.0.0.1", False),
        ("brokerIP1=192.0.2.7", "0.0.0.0", True),  # noqa: S104
        ("brokerIP1=2001:db8::7", "::", True),
        ("brokerIP1=192.0.2.7\nbindAddress=192.0.2.8", "192.0.2.8", False),
    ],
)
def test_loopback_unless_an_address_is_given(
    tmp_path: Path, text: str, bound: str, *, warned: bool
) -> None:
    settings = load(tmp_path, text)
    assert settings.config.bind_address == bound
    assert bool(settings.warnings) == warned


@pytest.mark.parametrize("port", ["1", "2"])
def test_the_fast_port_needs_room(tmp_path: Path, port: str) -> None:
    assert "fast port" in refusal(tmp_path, f"listenPort={port}").message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a/b", "contains illegal characters"),
        ("", "The specified topic is blank."),
        ("SCHEDULE_TOPIC_XXXX", "is a system topic with another purpose"),
        ("rmq_sys_traces", "is a system topic with another purpose"),
        ("DefaultCluster", "is a system topic with another purpose"),
    ],
)
def test_the_topic_of_traces_is_a_topic_of_its_own(tmp_path: Path, name: str, words: str) -> None:
    error = refusal(tmp_path, f"traceTopicEnable=true\nmsgTraceTopicName={name}")
    assert error.message == f"msgTraceTopicName={name} cannot be the trace topic."
    assert words in (error.detail or "")
    assert "broker.conf, line 2" in (error.detail or "")
    assert load(tmp_path, f"msgTraceTopicName={name}").config.trace_topic_name == name, "not used"


@pytest.mark.parametrize("name", ["RMQ_SYS_TRACE_TOPIC", "Traces"])
def test_names_of_topics_of_traces(tmp_path: Path, name: str) -> None:
    settings = load(tmp_path, f"traceTopicEnable=true\nmsgTraceTopicName={name}")
    assert settings.config.trace_topic_name == name


# -- TLS ----------------------------------------------------------------------------------------


def test_tls_from_the_file_and_from_the_file_it_names(tmp_path: Path) -> None:
    other = tmp_path / "tls.properties"
    other.write_text(
        "tls.server.certPath=a.pem\ntls.server.keyPath=a.key\ntls.test.mode.enable=false\n"
        "tls.server.need.client.auth=require\ntls.server.trustCertPath=ca.pem\n"
    )
    tls = load(tmp_path, f"tls.config.file={other}\ntls.server.certPath=b.pem\n").tls
    assert (tls.certificate_file, tls.key_file) == (Path("b.pem"), Path("a.key"))
    assert tls.client_auth is ClientAuth.REQUIRE
    assert tls.client_ca_file == Path("ca.pem")
    assert tls.mode is TlsMode.PERMISSIVE


# -- back to text -------------------------------------------------------------------------------


def test_shown_settings_can_be_read_again(tmp_path: Path) -> None:
    settings = load(tmp_path, "flushDiskType=SYNC_FLUSH\nautoCreateTopicEnable=false\n")
    text = format_properties(broker_properties(settings.config, settings.store))
    assert "flushDiskType=SYNC_FLUSH\n" in text
    assert "autoCreateTopicEnable=false\n" in text
    again = load(tmp_path, text)
    assert (again.config, again.store) == (settings.config, settings.store)


def test_only_important_settings(tmp_path: Path) -> None:
    settings = load(tmp_path)
    shown = broker_properties(settings.config, settings.store, only_important=True)
    assert shown.keys() == IMPORTANT_KEYS


def test_secrets_are_not_shown() -> None:
    secret = TlsSettings(key_password="hush")
    shown = broker_properties(BrokerConfig(), MessageStoreConfig(), secret)
    assert "hush" not in format_properties(shown)
    assert parse_properties(format_properties(shown))["tls.server.keyPassword"] == "********"
