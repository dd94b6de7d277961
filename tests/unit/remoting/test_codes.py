"""What the tables of codes hold besides the numbers."""

from __future__ import annotations

import pytest

from roquet.remoting.codes import (
    Handler,
    RequestCode,
    request_code_name,
    response_code_name,
    version_name,
    version_ordinal,
)


def test_codes_are_numbers() -> None:
    code = 310
    assert code == RequestCode.SEND_MESSAGE_V2
    assert RequestCode(310) is RequestCode.SEND_MESSAGE_V2
    assert f"{RequestCode.SEND_MESSAGE_V2}" == "310"


def test_every_request_code_has_a_purpose() -> None:
    assert [code.name for code in RequestCode if not code.purpose.strip()] == []


def test_codes_that_are_not_handled() -> None:
    nobody = {int(code) for code in RequestCode if code.handlers is Handler.NONE}
    declared_only = {47, 209, 210, 211, 212, 213, 214, 13, 22, 23, 27, 301, 302}
    assert nobody == declared_only | {1014, 1015, 1016, 1017, 1018}


def test_codes_handled_by_clients() -> None:
    clients = {int(code) for code in RequestCode if Handler.CLIENT in code.handlers}
    assert clients == {39, 40, 220, 221, 307, 309, 326}


@pytest.mark.parametrize(
    ("code", "label"),
    [
        (RequestCode.SEND_MESSAGE, "broker"),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, "broker, client"),
        (RequestCode.BROKER_HEARTBEAT, "namesrv, controller"),
        (RequestCode.SUSPEND_CONSUMER, "nobody"),
    ],
)
def test_labels(code: RequestCode, label: str) -> None:
    assert code.handlers.label == label


def test_names_of_numbers() -> None:
    assert (request_code_name(17), response_code_name(17)) == (
        "UPDATE_AND_CREATE_TOPIC",
        "TOPIC_NOT_EXIST",
    )
    assert (request_code_name(-5), response_code_name(4711)) == ("-5", "4711")


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (37, "V3_0_11"),
        (121, "V3_4_9"),
        (233, "V4_1_0"),
        (317, "V4_5_2"),
        (399, "V4_9_3"),
        (401, "V4_9_4"),
        (413, "V5_0_0"),
        (475, "V5_3_1"),
        (493, "V5_4_0"),
        (513, "V5_5_0"),
        (612, "HIGHER_VERSION"),
    ],
)
def test_versions(ordinal: int, name: str) -> None:
    assert version_name(ordinal) == name
    assert version_ordinal(name) == ordinal


def test_versions_of_other_clients() -> None:
    assert (version_name(100_000), version_name(-1)) == ("HIGHER_VERSION", "V3_0_0_SNAPSHOT")
    with pytest.raises(KeyError):
        version_ordinal("V9_9_9")
