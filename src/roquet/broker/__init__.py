"""The broker: processors that answer requests, managers that own tables, services that keep time.

Requests come in through :mod:`roquet.remoting`, messages go to :mod:`roquet.store`; everything in
between runs on one event loop. :class:`~roquet.broker.broker.Broker` joins the parts.
"""
