"""Shows errors to Spark users as one sentence and a hint.

Spark plans a Python source in a separate process and puts that process's whole traceback into the
exception that the user sees. Roquet's own errors say all there is to know, so this hides their
traceback, and turns operating system errors about files into such errors. Other exceptions are
bugs and keep their traceback.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from roquet.errors import RoquetError, StoreError

_HIDE = "SPARK_HIDE_TRACEBACK"


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise Roquet's errors without a traceback.

    For the body of every method that Spark calls. Spark reads a variable when it reports the
    exception; the process ends with the error, so nothing else sees the variable.
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
