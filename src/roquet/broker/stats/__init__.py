"""Counters of the broker, by topic and group."""
