"""Being in a group, on asyncio: the shell around `partage.member`.

`Coordinator` finds a group's coordinator and speaks to it, `Driver` runs a member's core over it.
"""
