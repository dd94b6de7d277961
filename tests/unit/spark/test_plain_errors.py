import os

import pytest

from roquet.errors import SparkOptionError, StoreError
from roquet.spark.plain_errors import plain_errors

HIDE = "SPARK_HIDE_TRACEBACK"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set before it is deleted, so that whatever the test leaves is taken back.
    monkeypatch.setenv(HIDE, "")
    monkeypatch.delenv(HIDE)


def test_what_roquet_says_needs_no_traceback() -> None:
    with pytest.raises(SparkOptionError), plain_errors():
        raise SparkOptionError("no")
    assert os.environ[HIDE] == "1"


def test_what_the_system_says_of_a_file_becomes_a_sentence() -> None:
    sentence = "/x/y cannot be read: Permission denied"
    with pytest.raises(StoreError, match=sentence) as caught, plain_errors():
        raise PermissionError(13, "Permission denied", "/x/y")
    assert caught.value.hint
    assert os.environ[HIDE] == "1"


def test_faults_of_the_program_keep_their_traceback() -> None:
    for fault in (ValueError("oops"), ConnectionResetError(104, "reset")):
        with pytest.raises(type(fault)), plain_errors():
            raise fault
    assert HIDE not in os.environ
