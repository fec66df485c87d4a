"""What each API does here, one file an API or a few that belong together."""
