"""Log compaction: planning, rewriting of segments, and the swap of files."""
