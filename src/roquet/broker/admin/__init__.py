"""Requests of operators and of clients that look things up, cut by noun."""
