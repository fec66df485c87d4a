"""Group membership on asyncio: the shell around the member core of `partage.member`.

`CoordinatorClient` finds a group's coordinator and sends requests to it. `Driver` runs a member
core with it.
"""
