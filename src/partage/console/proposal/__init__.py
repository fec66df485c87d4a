"""``partage proposal``: run an earlier design of consumer groups over sockets."""
