"""TLS and SASL on a client's connections.

`options` says what a user may set, `tls` makes contexts and words what OpenSSL says, `mechanisms`
are the SASL mechanisms as steps without I/O, `handshake` runs one of them over a connection, and
`tokens` gets OAuth tokens. `credentials` holds what all connections of a cluster share.
"""
