"""Floor 1: Kafka's bytes, and nothing but bytes.

``types`` has the words in which a message is declared, ``codec`` compiles a declaration into one
specialised encoder and decoder per version, ``apis`` declares the messages (one file an API),
``frames`` the headers around them, ``records`` the record batches, ``consumer_protocol`` the
bytes that consumers hand each other through a group.
"""
