"""The parts that the state machines of the coordinator and of the member share, without I/O.

- ``context`` arms and cancels timers while a handler runs.
- ``timers`` describes a timer, and ``states`` derives a table from the transitions.
- ``linear_pattern`` matches the patterns of clients without blocking.
- ``pages`` writes such tables as Markdown, for the generated pages of the documentation.
"""
