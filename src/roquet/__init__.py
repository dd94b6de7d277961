"""Roquet: a RocketMQ-compatible message broker in Python.

This module holds the version and nothing else, so that importing any part of Roquet stays cheap.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
