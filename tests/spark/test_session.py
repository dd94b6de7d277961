from pyspark.sql import SparkSession


def test_the_session_runs_a_job(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10
