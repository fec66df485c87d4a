"""``partage configs``, ``partage topics alter`` and ``partage cluster describe``."""

from __future__ import annotations

import pytest

from partage.console.configs.entities import parse_changes

from .cli import PartageCli


def settings(partage: PartageCli, topic: str) -> dict[str, str]:
    """Return the settings of a topic that differ from the defaults."""
    (described,) = partage("topics", "describe", topic, "--json").json["topics"]
    return described["configs"]


def test_configs_alter_and_describe_topic(partage: PartageCli, topic: str) -> None:
    before = settings(partage, topic)
    change = ["configs", "alter", "--topic", topic]
    change += ["--add-config", "retention.ms=3600000,cleanup.policy=[compact,delete]"]
    assert partage(*change, "--dry-run").out == f"would alter topic {topic}\n"
    assert settings(partage, topic) == before
    assert partage(*change).out == f"altered topic {topic}\n"
    new = {"retention.ms": "3600000", "cleanup.policy": "compact,delete"}
    assert settings(partage, topic) == {**before, **new}
    title, header, *rows = partage("configs", "describe", "--topic", topic).lines
    assert title == f"topic {topic}"
    assert header.split() == ["NAME", "VALUE", "SOURCE", "READ-ONLY"]
    assert ["retention.ms", "3600000", "DYNAMIC_TOPIC_CONFIG", "no"] in [r.split() for r in rows]
    kafka_way = ["--entity-type", "topics", "--entity-name", topic]
    report = partage("configs", "alter", *kafka_way, "--delete-config", "retention.ms", "-J").json
    assert report == {
        "executed": True,
        "entities": [
            {
                "entity_type": "topics",
                "entity_name": topic,
                "added": {},
                "deleted": ["retention.ms"],
                "error": None,
            }
        ],
    }
    partage("configs", "alter", *kafka_way, "--delete-config", "cleanup.policy")
    assert settings(partage, topic) == before


def test_configs_describe_prints_all_settings_as_json(partage: PartageCli, topic: str) -> None:
    (described,) = partage("configs", "describe", "--topic", topic, "--json").json["entities"]
    assert (described["entity_type"], described["entity_name"]) == ("topics", topic)
    by_name = {each["name"]: each for each in described["configs"]}
    assert by_name["segment.bytes"]["is_default"]
    listed = partage("configs", "describe", "--topic", topic, "--all").lines
    assert {line.split()[0] for line in listed[2:]} == by_name.keys()


def test_configs_describe_several_topics_in_order(partage: PartageCli, topic: str) -> None:
    partage("topics", "create", f"{topic}-a")
    both = ["--topic", topic, "--topic", f"{topic}-a"]
    described = partage("configs", "describe", *both, "--json").json["entities"]
    assert [each["entity_name"] for each in described] == [topic, f"{topic}-a"]
    every = partage("configs", "describe", "--entity-type", "topics", "--json").json["entities"]
    assert {topic, f"{topic}-a"} <= {each["entity_name"] for each in every}


def test_configs_describe_broker(partage: PartageCli) -> None:
    (described, *_) = partage("cluster", "describe", "--json").json["brokers"]
    number = str(described["id"])
    by_option = partage("configs", "describe", "--broker", number, "--json").json
    by_type = partage("configs", "describe", "--entity-type", "brokers", "--json").json
    assert by_option["entities"][0]["entity_name"] == number
    names = [each["name"] for each in by_option["entities"][0]["configs"]]
    assert "log.retention.ms" in names
    assert [each["entity_name"] for each in by_type["entities"]] == [number]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["describe"], "name entities of one type"),
        (["describe", "--topic", "a", "--broker", "1"], "name entities of one type"),
        (["describe", "--entity-type", "users"], "unknown --entity-type 'users'; use topics, b"),
        (["describe", "--entity-name", "a"], "--entity-name requires --entity-type"),
        (["describe", "--entity-type", "groups"], "name the groups with --entity-name"),
        (["alter", "--topic", "a"], "configs alter requires --add-config or --delete-config"),
        (["alter", "--topic", "a", "--add-config", "b"], "--add-config requires NAME=VALUE, not"),
        (
            ["alter", "--topic", "a", "--add-config", "b=1", "--delete-config", "b"],
            "--add-config and --delete-config both name b",
        ),
        (["alter", "--entity-type", "topics", "--add-config", "b=1"], "name the topics to change"),
    ],
)
def test_configs_invalid_options_are_rejected(
    partage: PartageCli, arguments: list[str], says: str
) -> None:
    assert partage.fails("configs", *arguments, code=2).startswith(says)


def test_configs_refusals_are_named(partage: PartageCli, topic: str, name: str) -> None:
    missing = partage.fails("configs", "describe", "--topic", f"{name}-no")
    assert missing.startswith(f"cannot describe topic {name}-no: ")
    change = ["configs", "alter", "--topic", topic, "--add-config", "no.such.setting=1"]
    assert partage.fails(*change).startswith(f"topic {topic} was not altered: ")


@pytest.mark.parametrize(
    "arguments", [["describe"], ["alter", "--add-config", "log.cleaner.backoff.ms=1", "--dry-run"]]
)
def test_configs_unknown_broker_is_named(partage: PartageCli, arguments: list[str]) -> None:
    error = partage.fails("configs", *arguments, "--broker", "9")
    assert error == "no live broker has the id 9; the live brokers are 1"


def test_changes_are_parsed_as_kafka_writes_them() -> None:
    given = ["a=1,b=[2,3]", "c=", "d=x=y"]
    assert parse_changes(given, "--add-config") == {"a": "1", "b": "2,3", "c": "", "d": "x=y"}


@pytest.mark.parametrize("group", ["configs", "topics"])
def test_deleting_an_unknown_setting_is_refused(
    partage: PartageCli, topic: str, group: str
) -> None:
    before = settings(partage, topic)
    change = [group, "alter", "--topic", topic, "--delete-config"]
    refused = partage(*change, "retention.mss", "--delete-config", "cleanup.policy", code=1)
    assert "no such setting: retention.mss; did you mean retention.ms?" in refused.err
    assert settings(partage, topic) == before
    partage(*change, "retention.ms")  # it has its default already


def test_alter_adds_partitions_and_settings(partage: PartageCli, topic: str) -> None:
    change = ["topics", "alter", topic, "--partitions", "6", "--config", "retention.ms=60000"]
    assert partage(*change, "--dry-run").out == f"would alter topic {topic}\n"
    assert partage("topics", "list", topic, "-J").json["topics"][0]["partitions"] == 4
    assert partage(*change).out == f"altered topic {topic}\n"
    assert partage("topics", "list", topic, "-J").json["topics"][0]["partitions"] == 6
    assert settings(partage, topic)["retention.ms"] == "60000"
    change = ["topics", "alter", "--topic", topic, "--delete-config", "retention.ms", "--json"]
    (altered,) = partage(*change).json["topics"]
    assert altered == {
        "topic": topic,
        "partitions": None,
        "added": {},
        "deleted": ["retention.ms"],
        "error": None,
    }
    assert "retention.ms" not in settings(partage, topic)


def test_alter_changes_nothing_if_one_change_is_refused(partage: PartageCli, topic: str) -> None:
    before = settings(partage, topic)
    change = ["topics", "alter", topic, "--partitions", "2", "--config", "retention.ms=60000"]
    assert partage.fails(*change).startswith(f"topic {topic} was not altered: ")
    assert settings(partage, topic) == before


def test_alter_mistakes_are_named(partage: PartageCli, topic: str) -> None:
    missing = partage.fails("topics", "alter", f"{topic}x", "--partitions", "2")
    assert missing.startswith(f"no such topic: {topic}x; did you mean {topic}")
    assert "requires --partitions" in partage.fails("topics", "alter", topic, code=2)
    both = ["--config", "a=1", "--delete-config", "a"]
    assert "both name a" in partage.fails("topics", "alter", topic, *both, code=2)


def test_cluster_describe_prints_brokers(partage: PartageCli, topic: str) -> None:
    description = partage("cluster", "describe", "--json").json
    host, _, port = partage.bootstrap_servers.rpartition(":")
    (broker,) = description["brokers"]
    assert broker["port"] == int(port)
    assert broker["is_controller"]
    assert description["controller_id"] == broker["id"]
    assert description["cluster_id"]
    assert description["partitions"] == broker["leaders"] >= 4
    first, header, row = partage("cluster", "describe").lines
    assert first.startswith(f"cluster {description['cluster_id']}: ")
    assert header.split() == ["BROKER", "HOST", "PORT", "RACK", "CONTROLLER", "LEADERS"]
    assert row.split()[:3] == [str(broker["id"]), broker["host"], port]
    assert host
