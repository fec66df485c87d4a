"""The options of recipes, typed; see `partage.client.config`."""

from __future__ import annotations

from typing import Annotated

from partage.client.config import Option
from partage.client.consumer.config import ReaderConfig


class ProcessorConfig(ReaderConfig, total=False):
    """The options of `Processor`: those of a consumer, except its group, commits and assignor."""

    auto_offset_reset: Annotated[
        str,
        Option(
            "As in `partage.ConsumerConfig`, but `earliest` by default",
            kafka="auto.offset.reset",
            kip=1106,
        ),
    ]


class IndexerConfig(ReaderConfig, total=False):
    """The options of `RedundantIndexer`: as `ProcessorConfig`, without ``auto_offset_reset``.

    ``max_poll_records`` is 10,000 by default.
    """
