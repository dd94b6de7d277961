"""Replication of the log between a master and its slaves, with Apache RocketMQ's HA protocol.

Classic replication, wire-compatible with Java brokers in both directions: a slave connects to its
master's HA port, reports where its own log ends, and receives the log from there as raw bytes. The
bytes of a frame are described in :mod:`roquet.format.ha_frames`.

========================================= ==================================================
:mod:`roquet.ha.service`                  the whole of it, as the broker sees it
:mod:`roquet.ha.master_side`              what a master does on one connection, without I/O
:mod:`roquet.ha.slave_side`               what a slave does on its connection, without I/O
:mod:`roquet.ha.sender`                   runs the master's side on sockets
:mod:`roquet.ha.follower`                 runs the slave's side on a socket
:mod:`roquet.ha.in_sync`                  how far enough replicas have the log
:mod:`roquet.ha.flow`                     bytes per second, counted and limited
========================================= ==================================================

What other parts of the broker use is :class:`~roquet.ha.service.HaService`, which exists in
``BrokerComponents.ha`` for every role:

.. code-block:: text

    await ha.start()                        listen; on a slave, also follow the master
    await ha.stop()
    ha.listen_port                          the HA port, once it listens; advertised as haServerAddr
    ha.update_ha_master_address("ip:port")  on a slave: follow this master from now on; "" for none
    ha.ha_master_address                    the master that is followed, "" if there is none
    ha.master_flush_offset                  a slave's note of its master, kept in the checkpoint
    ha.reset_master_flush_offset(offset)
    ha.status()                             an HaStatus: connections or the master, and how far

The broker's role is ``store.config.broker_role``. ``update_ha_master_address`` may be called at any
time on the event loop, also with the address that is already in use, which changes nothing. A
``haMasterAddress`` in the settings is followed from the start; whoever learns addresses from name
servers should not overwrite it (upstream does not either).

Invariants:

* A slave's log is a prefix of its master's, byte for byte, or replication stops with an error:
  nothing is ever appended after bytes that differ from the master's.
* A slave reports only what it has compared with or received from this master.
* A master counts a report only up to the end of its own log, and refuses a slave that is ahead.
"""
