"""Commands under test know nothing of the user who runs the tests."""

from tests.no_contexts import no_contexts

__all__ = ["no_contexts"]
