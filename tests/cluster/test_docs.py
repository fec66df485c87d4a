"""The commands of docs/cluster.md, with brokers started as the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from docs.page_examples import examples_of, is_expected
from free_ports import free_ports

from .brokers import PATIENCE_S
from .zookeeper_ensemble import Ensemble

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("zookeeper"),
    pytest.mark.timeout(600),
]

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"


def test_commands_of_cluster_page(zookeeper: Ensemble, tmp_path: Path) -> None:
    text = PAGE.read_text().replace("127.0.0.1:2181", zookeeper.connect_string)
    first, second = free_ports(2)
    text = text.replace("127.0.0.1:9092", f"127.0.0.1:{first}")
    text = text.replace("127.0.0.1:9093", f"127.0.0.1:{second}")
    blocks = [each for each in examples_of(text, PAGE.name) if each.language == "console"]
    first_block, second_block = blocks
    commands = [each.text for each in first_block.commands()]
    starting = [each for each in commands if each.startswith("partage broker")]
    using = [each.text for each in second_block.commands()]
    assert len(starting) == 2
    assert using
    lines: list[str] = []
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    with (tmp_path / "log").open("w") as log:
        processes = [
            subprocess.Popen(
                shlex.split(each),
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            for each in starting
        ]
    try:
        for process in processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("127.0.0.1:"), (tmp_path / "log").read_text()
        for command in using:
            # In the page's examples, the first broker has the default port of the tools.
            command = re.sub(r"\bpartage (\w+)( \w+)?", rf"\g<0> -b 127.0.0.1:{first}", command)
            done = subprocess.run(
                ["bash", "-c", f"set -o pipefail; {command}"],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            lines += done.stdout.splitlines()
        assert second_block.output is not None
        assert is_expected(lines, second_block.output), "\n".join(lines)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(PATIENCE_S)
            assert process.stdout is not None
            process.stdout.close()
