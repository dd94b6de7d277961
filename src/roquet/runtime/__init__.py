"""The only access to time, files, memory mappings, randomness and fail points.

All effects of the outside world pass through here, so that tests can replace them. Imports
``roquet.model``; every layer above may import it.
"""
