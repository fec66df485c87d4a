"""Floor 5½: whole jobs on Spark and on groups, each of which ends with exactly its records.

A pipeline is a sub-package with a core without I/O, a shell, and a function that runs it and
returns a report. ``partage pipeline NAME`` is its command line (`partage.console.pipelines.commands`).
"""
