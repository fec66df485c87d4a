"""The limit of open files of a process, of which each connection needs one."""

from __future__ import annotations

import resource
from typing import Final

#: For files and for the system, or half of the limit if that is less.
_RESERVED_DESCRIPTORS: Final = 640


def raise_descriptor_limit() -> tuple[int, int] | None:
    """Raise the limit of file descriptors as far as the system allows.

    Returns:
        The limit, and the number of connections that fit in it; None if there is no limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        # macOS: the hard limit is reported as infinite, but has a maximum
        except (ValueError, OSError):
            hard = soft
    if hard == resource.RLIM_INFINITY:
        return None
    return hard, hard - min(_RESERVED_DESCRIPTORS, hard // 2)
