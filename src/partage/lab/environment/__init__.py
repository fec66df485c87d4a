"""Simulated environment of the processes: clock, network, disks and ZooKeeper."""
