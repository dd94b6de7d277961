"""Inspects a store from outside: its content, its integrity, and its rebuild.

Implements ``roquet store``; :mod:`roquet.storefiles` reads the files. Except for ``rebuild``,
nothing here creates, locks or changes a file.

===================== ==================================================================
module                owns
===================== ==================================================================
``info``              the summary
``dump``              selected records
``verify``            the check of everything against everything; ``verify_*`` its parts
``rebuild``           ConsumeQueue and index rebuilt from the log
===================== ==================================================================
"""
