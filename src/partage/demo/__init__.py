"""The main job on real data: applications of Spark's share a year of flights, and one is killed.

``python -m partage.demo`` (``make demo``) starts a broker and loads New York's weather of 2013. Two
applications, each a Spark session in a process of its own, share the flights as they come and join
each with the weather of its hour; a third one joins them, one is killed with -9. In the end each
flight is in the table exactly once, and the figures computed from it are those of the CSV files.
"""
