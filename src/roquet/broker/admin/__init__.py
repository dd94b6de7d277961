"""Processors of administrative requests and of lookups by clients, one module per subject."""
