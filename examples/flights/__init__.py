"""Demo on real data: Spark applications share a year of flights, and one of them is killed.

Run it with ``make demo``, or in the repository's directory with ``python -m examples.flights``.

The demo starts a broker and loads New York's weather of 2013. Two applications, each a process with
a Spark session, share the flights as they arrive, and join each flight with the weather of its
hour. A third application joins the group, and one is killed with SIGKILL. At the end each flight is
in the table exactly once, and the figures equal those computed from the CSV files.
"""
