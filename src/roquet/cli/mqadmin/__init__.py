"""``roquet mqadmin``: upstream's admin tool, command for command.

Scripts parse that tool's output, so texts, columns, order and exit codes are upstream's.
``commands.txt`` lists all of its commands and flags; each area has a module.
"""
