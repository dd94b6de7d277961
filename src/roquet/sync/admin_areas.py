"""The areas of the admin API, without asyncio.

Owns one class for each area of :class:`roquet.sync.Admin`, with the methods, parameters and
docstrings of the asyncio class of the same name.
"""

from __future__ import annotations

from roquet import admin as aio
from roquet.sync.blocking_proxy import BlockingProxy, blocking

__all__ = [
    "Clients",
    "Clusters",
    "DeadLetters",
    "Groups",
    "KvValues",
    "Messages",
    "Offsets",
    "Settings",
    "Stats",
    "Topics",
]


class Clusters(BlockingProxy[aio.Clusters]):
    """Clusters and brokers; ``admin.clusters``.

    Calls with ``cluster`` or ``broker`` go to the masters of that cluster, or to that broker (by
    its name, or as ``host:port``); without both, to all masters.

    Example:
        clusters = admin.clusters.names()
    """

    names = blocking(aio.Clusters.names)
    brokers = blocking(aio.Clusters.brokers)
    members = blocking(aio.Clusters.members)
    runtime = blocking(aio.Clusters.runtime)
    replication = blocking(aio.Clusters.replication)
    replica_lag = blocking(aio.Clusters.replica_lag)
    epochs = blocking(aio.Clusters.epochs)
    forbid_writes = blocking(aio.Clusters.forbid_writes)
    allow_writes = blocking(aio.Clusters.allow_writes)
    clean_expired_queues = blocking(aio.Clusters.clean_expired_queues)
    clean_unused_topics = blocking(aio.Clusters.clean_unused_topics)
    delete_expired_log = blocking(aio.Clusters.delete_expired_log)


class Topics(BlockingProxy[aio.Topics]):
    """Topics; ``admin.topics``.

    Calls with ``cluster`` or ``broker`` go to the masters of that cluster, or to that broker (by
    its name, or as ``host:port``); without both, to all masters.

    Example:
        names = admin.topics.names()
    """

    names = blocking(aio.Topics.names)
    system_names = blocking(aio.Topics.system_names)
    route = blocking(aio.Topics.route)
    config = blocking(aio.Topics.config)
    configs = blocking(aio.Topics.configs)
    stats = blocking(aio.Topics.stats)
    groups = blocking(aio.Topics.groups)
    create = blocking(aio.Topics.create)
    put = blocking(aio.Topics.put)
    delete = blocking(aio.Topics.delete)


class Groups(BlockingProxy[aio.Groups]):
    """Consumer groups; ``admin.groups``.

    Calls with ``cluster`` or ``broker`` go to the masters of that cluster, or to that broker (by
    its name, or as ``host:port``); without both, to all masters.

    Example:
        names = admin.groups.names()
    """

    names = blocking(aio.Groups.names)
    configs = blocking(aio.Groups.configs)
    config = blocking(aio.Groups.config)
    topics = blocking(aio.Groups.topics)
    subscription = blocking(aio.Groups.subscription)
    create = blocking(aio.Groups.create)
    put = blocking(aio.Groups.put)
    delete = blocking(aio.Groups.delete)
    readable = blocking(aio.Groups.readable)
    set_readable = blocking(aio.Groups.set_readable)


class Offsets(BlockingProxy[aio.Offsets]):
    """Offsets of queues and groups; ``admin.offsets``.

    Example:
        progress = admin.offsets.progress("billing")
    """

    bounds = blocking(aio.Offsets.bounds)
    at_time = blocking(aio.Offsets.at_time)
    earliest_store_time_ms = blocking(aio.Offsets.earliest_store_time_ms)
    progress = blocking(aio.Offsets.progress)
    all_progress = blocking(aio.Offsets.all_progress)
    time_spans = blocking(aio.Offsets.time_spans)
    of_clients = blocking(aio.Offsets.of_clients)
    committed = blocking(aio.Offsets.committed)
    least_of_others = blocking(aio.Offsets.least_of_others)
    plan_reset = blocking(aio.Offsets.plan_reset)
    reset = blocking(aio.Offsets.reset)
    reset_queue = blocking(aio.Offsets.reset_queue)
    clone = blocking(aio.Offsets.clone)


class Clients(BlockingProxy[aio.Clients]):
    """Connected clients; ``admin.clients``.

    Example:
        found = admin.clients.consumers("billing")
    """

    consumers = blocking(aio.Clients.consumers)
    producers = blocking(aio.Clients.producers)
    all_producers = blocking(aio.Clients.all_producers)
    consumer_ids = blocking(aio.Clients.consumer_ids)
    running_info = blocking(aio.Clients.running_info)
    consume = blocking(aio.Clients.consume)


class Messages(BlockingProxy[aio.Messages]):
    """Messages; ``admin.messages``.

    Example:
        found = admin.messages.by_key("Orders", "17")
    """

    by_id = blocking(aio.Messages.by_id)
    by_offset_id = blocking(aio.Messages.by_offset_id)
    by_key = blocking(aio.Messages.by_key)
    by_time = blocking(aio.Messages.by_time)
    at = blocking(aio.Messages.at)
    queue_entries = blocking(aio.Messages.queue_entries)
    tracks = blocking(aio.Messages.tracks)
    resume_check = blocking(aio.Messages.resume_check)


class DeadLetters(BlockingProxy[aio.DeadLetters]):
    """Dead letters of groups; ``admin.dead_letters``.

    Example:
        groups = admin.dead_letters.groups()
    """

    groups = blocking(aio.DeadLetters.groups)
    stats = blocking(aio.DeadLetters.stats)
    messages = blocking(aio.DeadLetters.messages)
    redeliver = blocking(aio.DeadLetters.redeliver)


class Stats(BlockingProxy[aio.Stats]):
    """Counters of brokers; ``admin.stats``.

    A broker that has not counted anything under a name yet returns no values.

    Example:
        found = admin.stats.topic_puts("Orders")
    """

    view = blocking(aio.Stats.view)
    topic_puts = blocking(aio.Stats.topic_puts)
    group_gets = blocking(aio.Stats.group_gets)


class Settings(BlockingProxy[aio.Settings]):
    """Settings of servers; ``admin.settings``.

    Example:
        found = admin.settings.brokers()
    """

    brokers = blocking(aio.Settings.brokers)
    set_brokers = blocking(aio.Settings.set_brokers)
    name_servers = blocking(aio.Settings.name_servers)
    set_name_servers = blocking(aio.Settings.set_name_servers)


class KvValues(BlockingProxy[aio.KvValues]):
    """The key-value config of name servers; ``admin.kv``.

    Example:
        values = admin.kv.items("colours")
    """

    get = blocking(aio.KvValues.get)
    items = blocking(aio.KvValues.items)
    set = blocking(aio.KvValues.set)
    delete = blocking(aio.KvValues.delete)
    set_order = blocking(aio.KvValues.set_order)
