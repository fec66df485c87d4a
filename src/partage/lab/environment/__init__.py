"""What surrounds the processes of a world: time, network, disks, a ZooKeeper."""
