"""Random ids. The state machines have no source of randomness."""

from __future__ import annotations

import base64
import os
import uuid
from typing import Final

#: The hexadecimal digit with the variant of RFC 4122 in its two upper bits.
_VARIANTS: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


class IdSource:
    """Draws ids from the system's random numbers; a simulated world has a subclass."""

    def random_bytes(self, size: int) -> bytes:
        """Return random bytes."""
        return os.urandom(size)

    def fresh_uuid(self) -> uuid.UUID:
        """Return a random UUID."""
        return uuid.UUID(bytes=self.random_bytes(16), version=4)

    def fresh_id(self) -> str:
        """Return a random UUID as text, for a member id: ``str(uuid.uuid4())`` in a third of the
        time.

        Thousands of members may join at once.
        """
        digits = self.random_bytes(16).hex()
        return (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-"
            f"{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"
        )

    def fresh_topic_id(self) -> bytes:
        """Return a random UUID as 16 bytes."""
        return self.fresh_uuid().bytes

    def fresh_cluster_id(self) -> str:
        """Return a random UUID in Kafka's text format: 22 characters of base64."""
        return base64.urlsafe_b64encode(self.fresh_uuid().bytes).rstrip(b"=").decode()

    def fresh_nonce(self) -> str:
        """Return a random UUID as 32 hexadecimal digits, which tells two attempts apart."""
        return self.fresh_uuid().hex


#: The ids of a broker outside of a simulated world.
RANDOM_IDS: Final = IdSource()
