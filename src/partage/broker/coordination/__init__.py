"""The group coordinator: hosts for its shards, group events and lag samples."""
