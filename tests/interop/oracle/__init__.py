"""What a broker answers to each request in each state of a group, asked byte by byte.

``python -m interop.oracle ADDRESS`` (with ``tests`` on the path) prints the whole as text. What
Apache Kafka says is kept beside the code, so that ours can be compared with it cell by cell.
"""
