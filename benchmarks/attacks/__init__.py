"""Attacks on a broker or name server, and their effect on a healthy client."""
