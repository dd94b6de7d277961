"""The hot path: plain requests of one read, from bytes to responses, in compiled code.

Terms used in this package:

* A **burst** is everything that one read of a socket brought.
* A **plain** request only asks to be stored, read or committed, about a topic or in a form that the
  reference path has served before. The hot path takes plain requests only.
* The **reference path** handles everything: command, processor, store. It is complete, and slower.
* The **hot path** (:mod:`~roquet.broker.hot.path`) is one per broker; each connection has a
  **hot reader**, which takes plain requests from the front of a burst and leaves the rest.
* The **rules** (:mod:`~roquet.broker.hot.rules`) are what the reference path allows it to do.

``docs/internals/hot-path.md`` follows a send and a pull step by step.
"""
