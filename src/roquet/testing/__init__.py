"""Tools for testing programs that use Roquet, and Roquet itself.

Each module has its own: ``broker`` and ``background`` a broker inside a test, ``pytest_plugin`` the
fixtures, ``fault_proxy`` a bad network, ``files`` a bad disk, ``history`` a checker of what clients
saw. They are part of the product: typed, documented and kept working. May import every package
except the commands and the dashboard; product code never imports it.
"""
