"""Producing and administration through another client, confluent-kafka."""

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic


def produce(servers, topic, records, **config):
    """Produce records, each a dict of arguments to ``Producer.produce``; all are acknowledged.

    They keep their order: a batch must not overtake one that the producer sends again.
    """
    in_order = {"max.in.flight.requests.per.connection": 1}
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, **in_order, **config})
    failures = []
    for record in records:
        producer.produce(
            topic, on_delivery=lambda error, _: failures.append(error) if error else None, **record
        )
    assert producer.flush(30) == 0
    assert failures == []


def create_topic(servers, topic, partitions=1, **config):
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(topic, partitions, 1, config=config)])
    made[topic].result(30)


def create_partitions(servers, topic, total):
    """Let a topic have ``total`` partitions."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(30)


def delete_topic(servers, topic):
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(30)


def delete_records(servers, topic, before, partition=0):
    """Delete the records before the offset ``before``."""
    admin = AdminClient({"bootstrap.servers": servers})
    cut = TopicPartition(topic, partition, before)
    admin.delete_records([cut])[cut].result(30)
