"""Responses of a broker to each request in each state of a group, on the wire level.

``python -m interop.oracle ADDRESS`` (with ``tests`` on the path) prints them as text. The responses
of Apache Kafka are stored next to the code, to compare ours cell by cell.
"""
