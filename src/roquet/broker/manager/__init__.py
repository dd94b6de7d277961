"""Tables of the broker: topics, groups, offsets, clients, queue locks. Each has one owner here."""
