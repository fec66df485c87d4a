"""Jobs on Spark and on groups; each job processes every record exactly once.

A pipeline is a sub-package: a core without I/O, a shell that does I/O, and a function that runs the
job and returns a report. The command line is ``partage pipeline NAME``
(`partage.console.pipelines`).
"""
