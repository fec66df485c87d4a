"""The assignors of a broker, by the names in ``group.consumer.assignors``."""

from __future__ import annotations

import pytest

from partage.assignors import Assignor
from partage.assignors.server_side import AssignorAdapter, ServerSideRange, Uniform
from partage.broker.coordination.assignor_registry import AssignorRegistry
from partage.broker.overrides import OverrideError


class Own(Assignor):
    name = "own"

    def assign(self, members, topics):
        return {}


OBJECT = Own()


def test_registry_has_built_in_assignors_of_kafka():
    registry = AssignorRegistry(["uniform", "range"])
    assert registry.names == ("uniform", "range")
    assert isinstance(registry.get("uniform"), Uniform)
    assert isinstance(registry.get("range"), ServerSideRange)
    assert all(map(registry.is_built_in, registry.names))


@pytest.mark.parametrize(
    "name",
    [
        "consistent-hashing",
        "cooperative-sticky",
        "co-partitioned",
        "rack-aware",
        "roundrobin",
        "sticky",
    ],
)
def test_registry_runs_assignors_of_members(name):
    registry = AssignorRegistry([name])
    assert registry.names == (name,)
    assert isinstance(registry.get(name), AssignorAdapter)
    assert not registry.is_built_in(name)


@pytest.mark.parametrize("attribute", ["Own", "OBJECT"])
def test_registry_imports_own_assignor(attribute):
    registry = AssignorRegistry(["uniform", f"{__name__}:{attribute}"])
    assert registry.names == ("uniform", "own")
    assert isinstance(registry.get("own"), AssignorAdapter)
    assert not registry.is_built_in("own")


def test_registry_finds_entry_point(tmp_path, monkeypatch):
    """The name of the entry point counts, so that a package can offer one class twice."""
    info = tmp_path / "own-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[partage.assignors]\nmine = {__name__}:Own\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert AssignorRegistry(["mine"]).names == ("mine",)
    with pytest.raises(OverrideError, match=r"use one of .*mine"):
        AssignorRegistry(["other"])


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ([], "needs at least one"),
        (["uniform", "uniform"], "has 'uniform' twice"),
        (["fastest"], "there is no assignor 'fastest'; use one of .*range.*uniform"),
        (["missing_module:Own"], "missing_module"),
        ([f"{__name__}:Missing"], "Missing"),
        ([f"{__name__}:pytest"], "is not a subclass of partage.assignors.Assignor"),
        (["partage.assignors:LagBased"], "needs lags"),
        (["partage.assignors:Redundant"], "to 2 members"),
        (["partage.assignors:Assignor"], "abstract"),
    ],
)
def test_registry_refuses_unusable_name(names, problem):
    with pytest.raises(OverrideError, match=f"group.consumer.assignors.*{problem}"):
        AssignorRegistry(names)
