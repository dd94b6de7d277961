"""``make demo``: a small shop on Roquet, from its first order to its lake."""
