"""The designs over real sockets: asyncio shells for their state machines.

``CoordinatorServer`` serves a coordinator on a listening socket. ``SocketMemberShell`` runs a
member. A ``Codec`` has the frames of one connection. ``broker_side`` adds ZooKeeper and the records
of topics for the first design.
"""
