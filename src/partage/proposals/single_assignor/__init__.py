"""The second proposal of client-side assignment: one member assigns, in the join itself.

The coordinator sends the metadata of all members to one of them, the synchronizer. It returns the
assignment in a second JoinGroup request. Only then do all members get the responses to their
first one, each with its own part.
"""
