"""A store seen from outside: what is in it, is it sound, and can it be rebuilt.

Owns everything that ``roquet store`` does. Works on stores of Roquet and of a Java broker, running
or stopped. Except for ``rebuild`` nothing here creates, locks or changes a file.

===================== ==================================================================
module                owns
===================== ==================================================================
``layout``            the directory: which files belong to it, and what is wrong with them
``view``              the open store: segments mapped for reading, records by offset
``queues``            ConsumeQueue and ConsumeQueueExt files, read entry by entry
``index_files``       index files, and how many slots they have
``walk``              the log from record to record, across damage
``info``              the summary
``dump``              selected records
``verify``            the check of everything against everything; ``verify_*`` its parts
``rebuild``           ConsumeQueue and index made anew from the log
===================== ==================================================================
"""
