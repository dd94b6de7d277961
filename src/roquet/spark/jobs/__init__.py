"""Pipelines over logs and topics.

Each is a function in a module of its name, ``roquet.spark.jobs.stats.stats(spark, store, …)``, that
takes a session, what to read, and gives a :class:`~roquet.spark.report.Report`. ``roquet spark``
makes each a command.
"""
