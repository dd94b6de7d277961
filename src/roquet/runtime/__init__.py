"""The only door to time, files, memory mappings, randomness and fail points.

Whatever the outside world can do to the program passes through here, so that tests can stand in
its place. Imports ``roquet.model``; every layer above may import it.
"""
