"""Requests that compiled code takes.

Made by ``scripts/compiled_declarations.py``; change the Python modules, not this file.
"""

cdef enum:  # roquet.remoting.codes
    SEND_MESSAGE = 10
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    PULL_MESSAGE = 11
    LITE_PULL_MESSAGE = 361
    UPDATE_CONSUMER_OFFSET = 15

cdef enum:  # roquet.remoting.command
    ONEWAY_FLAG = 2

cdef enum:  # roquet.remoting.headers.pull
    COMMIT_OFFSET_FLAG = 1
