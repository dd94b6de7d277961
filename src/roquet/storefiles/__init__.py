"""Reads the files of a store from outside: for ``roquet store``, Spark and recovery.

Finds, reads and walks them. Works on stores of Roquet and of a Java broker, running or stopped.
Nothing here creates, locks or changes a file.

===================== ==================================================================
module                owns
===================== ==================================================================
``layout``            the directory: which files belong to it, and what is wrong with them
``closeable``         objects that close their files at the end of a ``with`` block
``window``            the bytes of a segment, a window at a time
``damage``            bytes that are not a valid record, and where the next one starts
``records``           the records of a range of one segment
``queues``            ConsumeQueues of both types and ConsumeQueueExts
``index_files``       index files, and how many slots they have
``view``              the open store: records by offset, queues, index, config
``walk``              the whole log from record to record, and how it ends
``faults``            the faults that a check can find
``record_checks``     each record against itself and its neighbours
``queue_checks``      the records of a range against the ConsumeQueues
``queue_leftovers``   records without an entry and entries without a record
``index_checks``      headers, slots and entries of index files
``index_chains``      how entries of an index file are linked
``manifest``          what a store held when it was closed
``vouching``          what must exist, according to manifest, checkpoint, queues and index
``manifest_checks``   which of that is missing
``small_files``       checkpoint, config, and file names and sizes
===================== ==================================================================
"""
