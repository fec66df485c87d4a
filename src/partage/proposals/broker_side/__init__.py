"""The first design: a coordinator on the broker assigns partitions and pushes them to consumers.

The coordinator pings the consumers. To rebalance a group it stops their fetchers, commits their
offsets, and starts the fetchers with the new assignment (Apache Kafka's wiki, "Kafka Detailed
Consumer Coordinator Design").
"""
