"""Processors of client requests, one module per request family."""
