"""A real browser without a window: Chromium, spoken to over a pipe in its DevTools protocol.

No library, no driver and no port: requests go to it as JSON with a zero byte after each, and
answers and events come back the same way.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from interop.peers import debs

#: Without a sandbox, because root has none; and without calls to its maker.
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-quic", "--hide-scrollbars", "--window-size=1200,1000"),
)
#: Puts the pipes where Chromium looks for them, and becomes it. Copies first: one may be where the
#: other has to go.
_HAND_OVER = """
import fcntl, os, sys
reading, writing = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(reading, 3)
os.dup2(writing, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
PATIENCE_S = 60.0


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
        #: What happened in the page, as the protocol tells it.
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(each for each in targets if each["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)
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

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command, and wait for its result."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last_id:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            more = os.read(self._from, 1 << 16)
            assert more, "the browser has ended"
            self._read += more
        message, _, self._read = self._read.partition(b"\0")
        return dict(json.loads(message))

    # What a person does.

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is loaded."""
        self.ask("Page.navigate", url=url)
        self.until(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def look(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until the expression is true, and give its value."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := self.look(expression)):
            text = self.look("document.body && document.body.innerText")
            assert time.monotonic() < deadline, f"never: {expression}\n{text}"
            time.sleep(0.05)
        return found

    def press(self, key: str, code: int) -> None:
        """A key, by its name and its number on Windows."""
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
        """Text into whatever has the focus."""
        self.ask("Input.insertText", text=text)

    def prefer(self, scheme: str) -> None:
        """A system that is ``light`` or ``dark``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path | None = None) -> bytes:
        """The whole page as PNG."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        png = base64.b64decode(shot["data"])
        if path is not None:
            path.write_bytes(png)
        return png

    # What has been seen.

    def requested(self) -> list[str]:
        """All addresses that the page has asked for."""
        return [
            each["params"]["request"]["url"]
            for each in self.events
            if each.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """What went wrong in the page: exceptions of scripts, and what a policy has forbidden."""
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
