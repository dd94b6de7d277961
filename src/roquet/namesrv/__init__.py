"""The name server: registered brokers, their topics, and key-value config.

All but ``namesrv`` is sans-I/O: requests go in, responses come out; time and files are passed in.
Imports ``roquet.model``, ``roquet.runtime`` and ``roquet.remoting``.

================ ===========================================================
module           what it owns
================ ===========================================================
``config``       settings, and which of them a request may change
``registration`` what a broker sends, and what it gets back
``route_info``   brokers, topics and how they come and go
``route_query``  changes of a route before a client gets it
``kv_config``    values by namespace and key, stored in a file
``processor``    one method per request code
``namesrv``      all of it with a port, files and a timer
================ ===========================================================
"""
