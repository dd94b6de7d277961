"""Errors that reach the user of a Spark session as one sentence and a hint.

Spark plans a Python source in a process of its own and puts that process's whole traceback into
the exception that the user sees. Owns the way around: what Roquet raises on purpose says all there
is to know, so the traceback is left out, and what the system says of a file becomes such an error.
Other exceptions are faults of the program and keep their traceback.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from roquet.errors import RoquetError, StoreError

_HIDE = "SPARK_HIDE_TRACEBACK"


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let an error of Roquet pass without its traceback.

    For the body of every method that Spark calls. The process that raises it ends with it, so that
    the variable, which Spark reads when it reports the exception, is never seen by anything else.
    """
    try:
        try:
            yield
        except OSError as error:
            if error.filename is None:
                raise
            raise StoreError(
                f"{error.filename} cannot be read: {error.strerror}.",
                hint="It must be there, and readable by the user that Spark runs as.",
            ) from None
    except RoquetError:
        os.environ[_HIDE] = "1"
        raise
