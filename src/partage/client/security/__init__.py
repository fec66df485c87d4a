"""TLS and SASL for a client's connections.

`options` defines the user's options. `tls` creates TLS contexts and turns OpenSSL errors into
messages. `mechanisms` has the SASL mechanisms as steps without I/O, and `handshake` runs one over a
connection. `tokens` gets OAuth tokens. `credentials` holds what the connections of a cluster share.
"""
