"""Remarks that several requests of administrators share."""

__all__ = ["UNSET"]

UNSET = "not set any response code"
"""What upstream leaves as the remark of some requests that succeeded."""
