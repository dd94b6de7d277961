import pytest

from roquet.errors import SparkOptionError
from roquet.spark.options import EARLIEST, LATEST, Options, parse_time_ms

KNOWN = ["subscribe", "startingOffsets", "maxSplitBytes", "failOnDataLoss", "minPartitions"]
ALIASES = {"topic": "subscribe"}


def options(**given: str) -> Options:
    lower = {name.lower(): value for name, value in given.items()}
    return Options("rocketmq", lower, known=KNOWN, aliases=ALIASES)


def test_names_are_compared_without_case_and_by_alias() -> None:
    assert options(TOPIC="a, b ,").names("subscribe") == ("a", "b")
    assert options(startingOffsets="Latest").offsets("startingOffsets", EARLIEST) == LATEST


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SparkOptionError) as caught:
        options(startingOffset="latest")
    assert str(caught.value) == (
        "rocketmq has no option 'startingoffset'.\nHINT: Did you mean 'startingOffsets'?"
    )


def test_an_unknown_option_like_no_other_lists_all() -> None:
    with pytest.raises(SparkOptionError, match="It has: failOnDataLoss, maxSplitBytes"):
        options(zzz="1")


def test_one_meaning_is_not_given_twice() -> None:
    with pytest.raises(
        SparkOptionError, match=r"'subscribe' and 'topic' of rocketmq mean the same"
    ):
        options(subscribe="a", topic="b")


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("64k", 65536), ("128 MB", 128 << 20), ("1GiB", 1 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert options(maxSplitBytes=text).size_bytes("maxSplitBytes") == size


@pytest.mark.parametrize("text", ["many", "-1", "1t", "0"])
def test_bad_sizes_are_refused_by_the_name_of_the_option(text: str) -> None:
    with pytest.raises(SparkOptionError, match="The option 'maxSplitBytes' of rocketmq is"):
        options(maxSplitBytes=text).size_bytes("maxSplitBytes")


def test_numbers_and_words_have_bounds() -> None:
    with pytest.raises(SparkOptionError, match="not a whole number"):
        options(minPartitions="two").integer("minPartitions")
    with pytest.raises(SparkOptionError, match="out of bounds"):
        options(minPartitions="0").integer("minPartitions", minimum=1)
    with pytest.raises(SparkOptionError, match="Write one of: true, false"):
        options(failOnDataLoss="perhaps").boolean("failOnDataLoss", default=True)
    assert options().boolean("failOnDataLoss", default=True) is True


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1763192000000", 1763192000000),
        ("2026-11-15T07:33:00Z", 1794727980000),
        ("2026-11-15T08:33:00+01:00", 1794727980000),
        ("2026-11-15 07:33:00.250", 1794727980250),
    ],
)
def test_times(text: str, time_ms: int) -> None:
    assert parse_time_ms(text) == time_ms


def test_offsets_of_every_queue() -> None:
    text = '{"T": {"a": {"0": 7, "3": -2}, "b": {"0": -1}}}'
    found = options(startingOffsets=text).offsets("startingOffsets", LATEST)
    assert found == {"T": {"a": {0: 7, 3: EARLIEST}, "b": {0: LATEST}}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[1]", "the whole is not an object"),
        ('{"T": 1}', "topic 'T' is not an object"),
        ('{"T": {"a": {"x": 1}}}', "not a queue id"),
        ('{"T": {"a": {"0": "1"}}}', "not an offset"),
        ('{"T": {"a": {"0": -3}}}', "not an offset"),
    ],
)
def test_bad_offsets_say_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(SparkOptionError, match=reason) as caught:
        options(startingOffsets=text).offsets("startingOffsets", LATEST)
    assert caught.value.hint
    assert "\n" not in caught.value.message
