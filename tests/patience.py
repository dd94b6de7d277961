"""Limits for tests that are not about time, which a busy machine must not reach."""

from roquet.remoting.client import ClientConfig

PATIENCE_S = 60
"""What a test waits for before it fails; a test that passes does not wait."""

TIMEOUT_MS = PATIENCE_S * 1_000
"""The same for a request."""

PATIENT = ClientConfig(connect_timeout_ms=TIMEOUT_MS, request_timeout_ms=TIMEOUT_MS)

NEVER_MS = 3_600_000
"""From when on a broker counts itself as busy, and refuses requests."""
