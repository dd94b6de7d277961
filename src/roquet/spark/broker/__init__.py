"""The data source ``rocketmq``: reads topics of a running cluster, and writes to them.

Everything goes through :mod:`roquet.client`, so the cluster may be Roquet's or Apache RocketMQ's.
"""

from roquet.spark.broker.planning import BehindLatest, behind_by_queue, behind_latest

__all__ = ["BehindLatest", "behind_by_queue", "behind_latest"]
