"""Shell completion of commands, options, topics, groups and profiles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .cli import PartageCli


def completed(line: str, shell: str = "bash", **environment: str) -> list[str]:
    """Return the completions of the last word."""
    words = {
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(
        [sys.executable, "-c", "from partage.console import main; main()"],
        env={**os.environ, **words, **environment, "_PARTAGE_COMPLETE": f"complete_{shell}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


def test_commands_and_options_are_completed() -> None:
    assert completed("partage gr") == ["groups"]
    assert completed("partage groups re") == ["reset-offsets", "remove-member"]
    assert "--to-earliest" in completed("partage groups reset-offsets --to-")
    (line,) = completed("partage cons", "fish")
    assert line.split("\t") == ["consume", "Print records, one per line."]


def test_topics_and_groups_are_completed(partage: PartageCli, topic: str) -> None:
    group = f"{topic}-readers"
    partage("produce", "-t", topic, stdin="a\n")
    partage("consume", topic, "--group", group, "--from-beginning", "-e")
    servers = partage.bootstrap_servers
    start = topic[: len(topic) // 2 + 1]
    assert topic in completed(f"partage consume -b {servers} {start}")
    assert topic in completed(f"partage topics delete {start}", **partage.env)
    assert completed(f"partage groups describe {group[:-3]}", **partage.env) == [group]
    assert completed(f"partage groups members -g {group[:-3]}", **partage.env) == [group]


def test_unreachable_cluster_completes_nothing() -> None:
    assert completed("partage topics delete -b 127.0.0.1:1 a") == []
    assert completed("partage topics delete --profile missing a") == []


def test_profiles_are_completed(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[profiles.production]\n[profiles.test]\n")
    found = completed("partage topics list --profile p", PARTAGE_CONFIG=str(config))
    assert found == ["production"]


def test_completion_script_registers_with_bash(partage: PartageCli) -> None:
    # The command after it keeps bash alive, so that partage detects bash as its parent.
    script = partage.shell("partage --show-completion && true")
    assert script.code == 0, script.err
    registered = partage.shell(f"{script.out}\ncomplete -p partage")
    assert registered.lines[-1].endswith(" partage")
