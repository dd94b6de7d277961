"""Tools for testing programs that use Roquet, and Roquet itself.

They are part of the product: typed, documented and kept working. May import every package except
the commands and the dashboard; product code never imports it.
"""
