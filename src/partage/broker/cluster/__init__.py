"""Several brokers with one ZooKeeper: the asyncio shell around `partage.store`.

- `facade`: the functions that a broker calls to be part of a cluster.
- `cluster_session`: the interface of a ZooKeeper session; `kazoo_session`, `tls`: with kazoo.
- `cluster_membership`: sessions, registration and the other brokers.
- `owned_shards`, `shared_store`: the shards that this broker owns, and their state in ZooKeeper.
- `cluster_topic_admin`: changes of topics for the whole cluster.
- `topic_reconciler`: applies these changes on this broker's disk.
"""
