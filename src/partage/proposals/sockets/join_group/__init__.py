"""The designs with JoinGroup over sockets, with the records of real topics."""
