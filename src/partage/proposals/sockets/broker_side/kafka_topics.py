"""The topics of the brokers that hold the records."""

from __future__ import annotations

from partage.client.cluster import Cluster
from partage.client.errors import ClientError
from partage.client.options import ClientOptions


class KafkaTopics:
    """Reads the topics of a Kafka cluster, without internal ones.

    Args:
        bootstrap_servers: Addresses of brokers, ``HOST:PORT,HOST:PORT``.
        options: The options of the client.
    """

    def __init__(self, bootstrap_servers: str, options: ClientOptions) -> None:
        self._cluster = Cluster(bootstrap_servers, options)

    async def read(self) -> dict[str, int]:
        """Return the partition count of each topic.

        Raises:
            OSError: The cluster does not answer.
        """
        try:
            topics = await self._cluster.all_topics()
        except ClientError as error:
            raise OSError(str(error)) from error
        return {
            name: len(topic.partitions) for name, topic in topics.items() if not topic.is_internal
        }

    def close(self) -> None:
        """Close all connections."""
        self._cluster.close()
