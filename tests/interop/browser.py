"""A headless Chromium, controlled over a pipe with the DevTools protocol.

It needs no library, driver or port. Requests, responses and events are JSON, each followed by a
zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from interop.peers import debs
from polled_conditions import PATIENCE_S, eventually

#: No sandbox, because root cannot use one; no background requests to its vendor.
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-quic", "--hide-scrollbars", "--window-size=1200,1000"),
)
#: Moves the pipes to the descriptors that Chromium expects, and executes Chromium. It copies them
#: first, because one may have the descriptor of the other.
_HAND_OVER = """
import fcntl, os, sys
reading, writing = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(reading, 3)
os.dup2(writing, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """A browser with one page; a context manager."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory(
            prefix="partage-chromium-", ignore_cleanup_errors=True
        )
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        command = [*debs.CHROMIUM.command(), *OPTIONS, "--remote-debugging-pipe"]
        command += [f"--user-data-dir={self._profile.name}", "about:blank"]
        handed = [sys.executable, "-c", _HAND_OVER, str(to_read), str(to_write)]
        self._process = subprocess.Popen(
            [*handed, *command],
            env=debs.CHROMIUM.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_read, to_write),
        )
        os.close(to_read)
        os.close(to_write)
        self._read = b""
        self._last_id = 0
        self._session: str | None = None
        #: Events of the page, in the protocol's form.
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        page_id = eventually(self._page_id)
        attached = self.ask("Target.attachToTarget", targetId=page_id, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait(60)
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()

    def _page_id(self) -> str | None:
        """Return the id of the page, which exists some time after the start."""
        targets = self.ask("Target.getTargets")["targetInfos"]
        return next((str(each["targetId"]) for each in targets if each["type"] == "page"), None)

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command, wait for its result and return it."""
        answer = self._answer(method, **parameters)
        assert "error" not in answer, answer
        return dict(answer["result"])

    def _answer(self, method: str, **parameters: object) -> dict[str, Any]:
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last_id:
                return answer
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            more = os.read(self._from, 1 << 16)
            assert more, "the browser has ended"
            self._read += more
        message, _, self._read = self._read.partition(b"\0")
        return dict(json.loads(message))

    # User actions.

    def open(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        self.ask("Page.navigate", url=url)
        self.until(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def look(self, expression: str) -> Any:
        """Evaluate a JavaScript expression in the page and return its value.

        A page that loads at the same moment ends the evaluation; then the next page evaluates it.
        """

        def evaluate() -> dict[str, Any] | None:
            answer = self._answer(
                "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
            )
            if "error" in answer:
                assert re.search("context|navigated", answer["error"]["message"]), answer
                return None
            return dict(answer["result"])

        found = eventually(evaluate)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until an expression is true, and return its value."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := self.look(expression)):
            text = self.look("document.body && document.body.innerText")
            assert time.monotonic() < deadline, f"never: {expression}\n{text}"
            time.sleep(0.05)
        return found

    def press(self, key: str, code: int) -> None:
        """Press a key, given by its name and its Windows key code."""
        for kind in ("rawKeyDown", "char", "keyUp"):
            if kind == "char" and key != "Enter":
                continue
            text = {"text": "\r"} if kind == "char" else {}
            self.ask(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **text,
            )

    def write(self, text: str) -> None:
        """Insert text into the focused element."""
        self.ask("Input.insertText", text=text)

    def prefer(self, scheme: str) -> None:
        """Set the system's colour scheme to ``light`` or ``dark``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path | None = None) -> bytes:
        """Return a screenshot of the whole page as PNG."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        png = base64.b64decode(shot["data"])
        if path is not None:
            path.write_bytes(png)
        return png

    # Recorded events.

    def requested(self) -> list[str]:
        """Return all addresses that the page has requested."""
        return [
            each["params"]["request"]["url"]
            for each in self.events
            if each.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Return the page's errors: exceptions of scripts, and violations of its policy."""
        found = []
        for each in self.events:
            if each.get("method") == "Runtime.exceptionThrown":
                found.append(str(each["params"]["exceptionDetails"]))
            if (
                each.get("method") == "Log.entryAdded"
                and each["params"]["entry"]["level"] == "error"
            ):
                found.append(each["params"]["entry"]["text"])
        return found
