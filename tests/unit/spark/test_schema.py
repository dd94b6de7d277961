import pytest
from pyspark.sql import types

from roquet.errors import SparkSchemaError
from roquet.spark.schema import COLUMNS, asked_columns, choose_columns, ddl, struct_type


def test_the_schema_as_text_is_the_schema() -> None:
    schema = struct_type()
    assert asked_columns(schema) == tuple(COLUMNS)
    assert ddl() == ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in schema.fields)


def test_a_reader_is_asked_for_the_columns_of_its_schema_in_their_order() -> None:
    assert asked_columns(struct_type(["queueOffset", "topic"])) == ("queueOffset", "topic")


def test_a_wrong_type_is_refused() -> None:
    with pytest.raises(SparkSchemaError, match="'queueId' is of type int, not bigint"):
        asked_columns(types.StructType().add("queueId", "long"))


def test_a_wrong_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(SparkSchemaError, match="Did you mean 'queueId'"):
        asked_columns(types.StructType().add("queue_id", "integer"))
    with pytest.raises(SparkSchemaError, match="no column '_corrupt'"):
        asked_columns(struct_type(["_corrupt"]), tuple(COLUMNS))


def test_columns_are_chosen_without_case_once_each() -> None:
    assert choose_columns(["BODY", "msgid"]) == ("body", "msgId")
    with pytest.raises(SparkSchemaError, match="requested twice"):
        choose_columns(["body", "Body"])
