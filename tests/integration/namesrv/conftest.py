"""The name server's network tests run on both event loops."""

from tests.event_loops import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
