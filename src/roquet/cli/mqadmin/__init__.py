"""``roquet mqadmin``: upstream's admin tool, command for command.

Scripts parse what that tool prints, so the words, the columns, the order and the exit codes are
upstream's. ``commands.txt`` lists all of its commands and flags; each area has a module.
"""
