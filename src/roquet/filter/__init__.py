"""Message filters: by tags, or by SQL92 expressions over properties.

May import ``roquet.model`` only.
"""
