"""The Kafka wire protocol: encoding and decoding of bytes, without I/O.

- ``types``: field types for message declarations;
- ``codec``: compiles a declaration into a specialised encoder and decoder for each version;
- ``apis``: the messages, one file per API;
- ``frames``: frame lengths and message headers;
- ``records``: record batches;
- ``consumer_protocol``: subscriptions and assignments, which a group transports as opaque bytes.
"""
