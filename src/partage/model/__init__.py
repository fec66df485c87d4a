"""Floor 0: the words everybody uses. Ids, error codes, settings; nothing here does anything."""
