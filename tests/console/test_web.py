"""The command ``partage web``. Tests of the page are in ``tests/web``."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing

import pytest

from polled_conditions import eventually

from .cli import PartageCli, records


def get(url: str, path: str = "") -> str:
    """Request a page as a browser does."""
    found = re.fullmatch(r"http://(.*):(\d+)/", url)
    assert found is not None, url
    connection = http.client.HTTPConnection(found[1].strip("[]"), int(found[2]), timeout=60)
    with closing(connection):
        connection.request("GET", f"/{path}", headers={"Host": f"localhost:{found[2]}"})
        return connection.getresponse().read().decode()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_web_serves_until_signal(partage: PartageCli, topic: str, end: signal.Signals) -> None:
    partage("produce", "-t", topic, "-p", 0, stdin=records(["a", "b"]))
    partage("consume", "-t", topic, "--group", topic, "--from-beginning", "-e")
    partage("produce", "-t", topic, "-p", 0, stdin=records(["c"]))
    command = ["web", "--listen", "127.0.0.1:0", "--interval-ms", "250"]
    with partage.start(*command) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        eventually(lambda: f'href="/groups/{topic}"' in get(url, f"?q={topic}"))
        shown = get(url, f"groups/{topic}")
        assert "Empty" in shown
        assert f"{topic}-0" in shown
        process.send_signal(end)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")


def test_web_on_all_addresses_warns(partage: PartageCli) -> None:
    command = ["web", "--listen", "0.0.0.0:0"]
    with partage.start(*command) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        warning = process.stderr.readline()
        assert warning.startswith("warning: 0.0.0.0:0 is reachable from other machines")
        assert "no login" in warning
        assert get(process.stdout.readline().strip())
        process.terminate()
        process.communicate(timeout=60)


def test_web_reports_unusable_address(partage: PartageCli) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        message = partage.fails("web", "--listen", address)
    assert message.startswith(f"cannot listen on {address}: Address already in use")
    assert "invalid address" in partage.fails("web", "--listen", "8080", code=2)
    assert partage.fails("web", "--interval-ms", "1", code=2)


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_web_names_missing_package(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; sys.argv[0] = 'partage'\n"
    program += "from partage.console import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", program, "web"], capture_output=True, text=True, timeout=60
    )
    wanted = f"error: this command needs {missing}: pip install 'partage[web]'\n"
    assert (ran.returncode, ran.stderr) == (1, wanted)
