"""The first design over sockets, with a real ZooKeeper and the records of real topics."""
