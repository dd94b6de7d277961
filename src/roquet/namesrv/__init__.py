"""The name server: which brokers are here, which topics they have, and values by name.

All but ``namesrv`` is sans-I/O: requests go in, answers come out; time and files are handed in.
Imports ``roquet.model``, ``roquet.runtime`` and ``roquet.remoting``.

================ ===========================================================
module           what it owns
================ ===========================================================
``config``       settings, and which of them a request may change
``registration`` what a broker says of itself, and what it learns
``route_info``   brokers, topics and how they come and go
``route_query``  what is made of a route before a client gets it
``kv_config``    values by namespace and key, kept in a file
``processor``    one method a request code
``namesrv``      all of it with a port, files and a timer
================ ===========================================================
"""
