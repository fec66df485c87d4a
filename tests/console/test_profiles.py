"""Profiles of clusters in a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from partage.console.common.connection import connection_properties
from partage.console.common.errors import CommandError
from partage.console.common.profiles import config_path, profile_names, read_profile

from .cli import PartageCli

SECURE = """
[profiles.production]
bootstrap.servers = ["kafka-1:9093", "kafka-2:9093"]
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
sasl.jaas.config = '''org.apache.kafka.common.security.scram.ScramLoginModule required \
username="reader" password="secret";'''
ssl.truststore.type = "PEM"
ssl.truststore.location = "/etc/kafka/ca.pem"
request.timeout.ms = 5000
enable.ssl.certificate.verification = false

[profiles.test]
"bootstrap.servers" = "localhost:9092"
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the profiles; it does not exist yet."""
    path = tmp_path / "config.toml"
    monkeypatch.setenv("PARTAGE_CONFIG", str(path))
    return path


def test_profile_gives_librdkafka_properties(config: Path) -> None:
    config.write_text(SECURE)
    assert profile_names() == ["production", "test"]
    assert read_profile("production") == {
        "bootstrap.servers": "kafka-1:9093,kafka-2:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "reader",
        "sasl.password": "secret",
        "ssl.ca.location": "/etc/kafka/ca.pem",
        "socket.timeout.ms": "5000",
        "enable.ssl.certificate.verification": "false",
    }
    assert read_profile("test") == {"bootstrap.servers": "localhost:9092"}


def test_path_follows_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARTAGE_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert config_path() == tmp_path / ".config/partage/config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert config_path() == tmp_path / ".config/partage/config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert config_path() == tmp_path / "xdg/partage/config.toml"
    monkeypatch.setenv("PARTAGE_CONFIG", str(tmp_path / "other.toml"))
    assert config_path() == tmp_path / "other.toml"


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        (SECURE, "prod", "no profile 'prod' in {}; did you mean production?"),
        (SECURE, "x", "no profile 'x' in {}; it has production, test"),
        ("", "x", "no profile 'x' in {}"),
        ("[profiles", "x", "cannot read the profiles in {}: Expected ']' at the end of a table"),
        ("profiles = 1", "x", "profiles in {} must be tables: [profiles.NAME]"),
        ("[profiles]\nx = 1", "x", "profile 'x' in {} must be a table: [profiles.x]"),
        ("[profiles.x]\na.b = [1]", "x", "profile 'x' in {}: a.b must be a text, a number,"),
        (
            '[profiles.x]\nssl.truststore.location = "a.jks"',
            "x",
            "profile 'x' in {}: ssl.truststore.location=a.jks: no such file or directory; correct",
        ),
        (None, "x", "--profile needs the file {}, which does not exist; create it, or set PARTAGE"),
    ],
)
def test_invalid_profile_is_rejected(
    partage: PartageCli, config: Path, text: str | None, name: str, says: str
) -> None:
    if text is not None:
        config.write_text(text)
    error = partage.fails("topics", "list", "--profile", name, code=2)
    assert error.startswith(says.format(config))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            'bootstrap.server = "x:1"',
            'no such configuration property: "bootstrap.server"; did you mean bootstrap.servers?',
        ),
        ('zzz = "1"', 'no such configuration property: "zzz"'),
        ('security.protocol = "TLS"', 'invalid value "TLS" for configuration property "security.'),
        ('socket.timeout.ms = "soon"', 'invalid value for configuration property "socket.timeout.'),
    ],
)
def test_invalid_property_is_reported_with_its_file(
    partage: PartageCli, config: Path, tmp_path: Path, line: str, says: str
) -> None:
    config.write_text(f"[profiles.x]\nclient.id = 'me'\n{line}\n")
    error = partage.fails("topics", "list", "--profile", "x", code=2)
    assert error.startswith(f"profile 'x' in {config}: {says}")
    properties = tmp_path / "client.properties"
    properties.write_text(line.replace('"', ""))
    error = partage.fails("topics", "list", "--command-config", properties, code=2)
    assert error.startswith(f"{properties}: {says}")
    error = partage.fails("topics", "list", "-X", line.replace('"', "").replace(" ", ""), code=2)
    assert error.startswith(f"-X: {says}")


def test_profile_reaches_cluster(
    partage: PartageCli, config: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(f'[profiles.here]\nbootstrap.servers = "{partage.bootstrap_servers}"\n')
    elsewhere = PartageCli("127.0.0.1:1")
    assert topic in elsewhere("topics", "list", "--profile", "here").out
    monkeypatch.setenv("PARTAGE_PROFILE", "here")
    monkeypatch.delenv("PARTAGE_BOOTSTRAP_SERVER", raising=False)
    assert topic in PartageCli("")("topics", "list").out


@pytest.mark.parametrize(
    ("sources", "more", "servers"),
    [
        ({"bootstrap_server": "ENVIRONMENT", "profile": "ENVIRONMENT"}, {}, "option:1"),
        ({"bootstrap_server": "ENVIRONMENT", "profile": "COMMANDLINE"}, {}, "profile:1"),
        ({"bootstrap_server": "COMMANDLINE", "profile": "COMMANDLINE"}, {}, "option:1"),
        (
            {"bootstrap_server": "COMMANDLINE", "profile": "COMMANDLINE"},
            {"properties": ["bootstrap.servers=x:1"]},
            "x:1",
        ),
    ],
)
def test_command_line_overrides_profile_and_environment(
    config: Path, sources: dict[str, str], more: dict[str, list[str]], servers: str
) -> None:
    config.write_text('[profiles.p]\nbootstrap.servers = "profile:1"\nclient.id = "me"\n')
    given = {"bootstrap_server": "option:1", "profile": "p", **more}
    assert connection_properties(given, sources).values == {
        "bootstrap.servers": servers,
        "client.id": "me",
    }


def test_command_config_overrides_profile(config: Path, tmp_path: Path) -> None:
    config.write_text('[profiles.p]\nbootstrap.servers = "profile:1"\nclient.id = "me"\n')
    properties = tmp_path / "client.properties"
    properties.write_text("bootstrap.servers=file:1\n")
    given = {"profile": "p", "command_config": properties}
    found = connection_properties(given, {"profile": "COMMANDLINE"}).values
    assert found == {"bootstrap.servers": "file:1", "client.id": "me"}
    sources = {"profile": "COMMANDLINE", "bootstrap_server": "COMMANDLINE"}
    found = connection_properties({**given, "bootstrap_server": "option:1"}, sources).values
    assert found["bootstrap.servers"] == "option:1"


def test_default_address_is_local(config: Path) -> None:
    assert connection_properties({}, {}).values == {"bootstrap.servers": "127.0.0.1:9092"}
    with pytest.raises(CommandError):
        connection_properties({"profile": "p"}, {})
