"""Several brokers with one ZooKeeper: the shell around the cores of `partage.store`.

``joining`` is what a broker calls, ``kazoo_session`` the connection, over ``tls`` if wanted,
``cluster`` its place among the others from session to session, ``holding`` the shards that it has,
``shared_store`` a shard's state there. ``shared_changes`` decides on topics with all others,
``following`` does on this broker's disk as was decided.
"""
