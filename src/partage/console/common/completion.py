"""Names of topics, groups and profiles for shell completion.

Completion never prints an error: if the cluster does not respond, no name is offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import typer

from partage.console.common.connection import connection_properties

if TYPE_CHECKING:
    from partage.console.common.cluster_client import ClusterClient

_TIMEOUT_MS: Final = 1_000


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that begin with the given text."""
    return _complete(context, incomplete, lambda cluster: cluster.metadata().topics)


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return the groups that begin with the given text."""
    return _complete(context, incomplete, _groups)


def complete_profiles(incomplete: str) -> list[str]:
    """Return the profiles that begin with the given text."""
    from partage.console.common.profiles import profile_names

    try:
        return [name for name in profile_names() if name.startswith(incomplete)]
    except Exception:  # an error message would be taken for a name, or break the prompt
        return []


def parameter_sources(context: typer.Context) -> dict[str, str]:
    """Return the origin of each parameter's value: COMMANDLINE, ENVIRONMENT or DEFAULT."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name: source.name for name, source in sources.items() if source is not None}


def _groups(cluster: ClusterClient) -> list[str]:
    listed = cluster.admin.list_consumer_groups(request_timeout=cluster.timeout_s)
    return [each.group_id for each in cluster.result(listed).valid or []]


def _complete(
    context: typer.Context, incomplete: str, fetch: Callable[[ClusterClient], Iterable[str]]
) -> list[str]:
    from partage.console.common.cluster_client import ClusterClient

    try:
        properties = connection_properties(context.params, parameter_sources(context)).values
        with ClusterClient("", properties, _TIMEOUT_MS, verbose=False) as cluster:
            return sorted(name for name in fetch(cluster) if name.startswith(incomplete))
    except Exception:  # an error message would be taken for a name, or break the prompt
        return []
