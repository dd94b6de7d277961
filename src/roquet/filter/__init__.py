"""Which messages a consumer wants: by tags.

May import ``roquet.model`` only.
"""
