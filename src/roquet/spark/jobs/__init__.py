"""Pipelines over logs and topics.

Each is a function in a module of the same name, ``roquet.spark.jobs.stats.stats(spark, store, …)``.
It takes a session and a source, and returns a :class:`~roquet.spark.report.Report`. ``roquet
spark`` has a command for each.
"""
