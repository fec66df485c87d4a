"""The metadata of a member in the design with many assignors, and its hashes.

A member sends its subscription and a hash of the topic metadata that it used. The document's
alternative sends a hash of the subscription instead of the subscription. Either may be compressed.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from typing import Final

from partage.wire import codec
from partage.wire.primitives import MalformedError
from partage.wire.types import Array, Buffer, Bytes, Message, NullableString, String

_HASH_BYTES: Final = 16
#: The metadata of one member, so that a few compressed bytes cannot exhaust the memory of others.
MEMBER_DECOMPRESSED_BYTES_MAX: Final = 16 << 20


class SubscriptionMetadata(Message):
    """A member's topics, or its pattern, and the hash of its topic metadata.

    ``user_data`` is for assignors. It is not in the document, which counts it in the size of the
    metadata.
    """

    topics: Array[String]
    topic_pattern: NullableString = None
    metadata_hash: Bytes
    user_data: Bytes = b""


class HashedMetadata(Message):
    """The hashes of a member's subscription and of its topic metadata."""

    subscription_hash: Bytes
    metadata_hash: Bytes


def hash_topics(topics: Mapping[str, int], names: Iterable[str]) -> bytes:
    """Return the hash of topic names and their partition counts.

    Args:
        topics: The partition count of each topic that the member knows.
        names: The topics to cover: those of a subscription, or all topics for a pattern.
    """
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    for name in sorted(names):
        digest.update(f"{name}\0{topics.get(name, 0)}\0".encode())
    return digest.digest()


def hash_subscription(topics: Iterable[str], pattern: str | None = None) -> bytes:
    """Return the hash of a subscription.

    The hash of a pattern does not depend on the topics that match. Members with one pattern are in
    one sub-group, where their metadata hashes show that one of them does not know a topic yet.

    Args:
        topics: The subscribed topics, ignored with a pattern.
        pattern: The pattern of a subscription.
    """
    text, kind = ("\0".join(sorted(topics)), b"") if pattern is None else (pattern, b"pattern")
    return hashlib.blake2b(text.encode(), digest_size=_HASH_BYTES, person=kind).digest()


def encode_metadata(metadata: Message, *, compresses: bool = False) -> bytes:
    """Return the bytes of a member's metadata."""
    encoded = b"".join(codec.encoder(type(metadata), 0, False)(metadata))
    return zlib.compress(encoded) if compresses else encoded


def decode_metadata(cls: type[Message], encoded: Buffer, *, is_compressed: bool = False) -> Message:
    """Decode a member's metadata.

    Raises:
        MalformedError: The bytes are not such metadata.
        zlib.error: They are not compressed.
    """
    message: Message
    data = decompress(encoded, MEMBER_DECOMPRESSED_BYTES_MAX) if is_compressed else encoded
    message, _ = codec.decoder(cls, 0, False)(data, 0)
    return message


def decompress(data: Buffer, bytes_max: int) -> bytes:
    """Return decompressed data.

    Args:
        data: The compressed data.
        bytes_max: The maximum size of the result.

    Raises:
        MalformedError: The result is larger.
        zlib.error: The data is not compressed.
    """
    decompressor = zlib.decompressobj()
    result = decompressor.decompress(data, bytes_max)
    if not decompressor.eof:
        if decompressor.unconsumed_tail or len(result) >= bytes_max:
            raise MalformedError(f"more than {bytes_max} bytes after decompression")
        raise MalformedError("the compressed bytes end too early")
    return result
