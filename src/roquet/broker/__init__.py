"""The broker: processors handle requests, managers own tables, services run on timers.

Requests come in through :mod:`roquet.remoting`, messages go to :mod:`roquet.store`; everything in
between runs on one event loop. :class:`~roquet.broker.broker.Broker` connects them.
"""
