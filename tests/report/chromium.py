"""Chromium without a screen, driven over its DevTools pipe: what a page shows, and a picture of it.

https://chromedevtools.github.io/devtools-protocol: messages are JSON objects that end in a zero
byte; the browser reads them from its descriptor 3 and answers on 4.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")

# Everything that a page shows, what lies in shadow trees included.
_TEXT = """
(function text(node) {
  if (!node) return '';
  if (node.nodeType === 3) return node.data;
  if (/^(SCRIPT|STYLE|TEMPLATE|DOM-MODULE)$/.test(node.nodeName)) return '';
  const inside = [...(node.shadowRoot ? node.shadowRoot.childNodes : []), ...node.childNodes];
  return inside.map(text).join(' ');
})(document.body)
"""


def missing() -> str:
    """Why there is no browser to look with, or ""."""
    if any(map(shutil.which, _NAMES)):
        return ""
    return "Chromium is not installed (Debian: apt-get install chromium)"


class Browser:
    """A browser with one page."""

    def __init__(self, to: int, answers: int) -> None:
        self._to, self._from = to, answers
        self._buffer, self._sent, self._session = b"", 0, ""
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        attached = self._send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def open(self, url: str, width: int = 1280, height: int = 900) -> None:
        """Goes to a page, in a window of so many pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._send("Emulation.setDeviceMetricsOverride", **size)
        self._send("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self._send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self) -> str:
        """Everything that the page shows."""
        return " ".join(str(self.evaluate(_TEXT)).split())

    def wait_for(self, shown: Callable[[str], bool], seconds: float = 60) -> str:
        """The page's text, as soon as it is what is waited for."""
        end = time.monotonic() + seconds
        while not shown(text := self.text()):
            assert time.monotonic() < end, f"not shown within {seconds} s; the page says: {text}"
            time.sleep(0.3)
        return text

    def screenshot(self, path: pathlib.Path) -> None:
        """Writes what the window shows, as PNG."""
        data = self._send("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def _send(self, method: str, **parameters: Any) -> Any:
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> bytes:
        while b"\0" not in self._buffer:
            read = os.read(self._from, 1 << 16)
            assert read, "the browser ended"
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return message


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Starts a browser, which ends with the block."""
    program = next(found for found in map(shutil.which, _NAMES) if found)
    read_here, written_there = os.pipe()
    read_there, written_here = os.pipe()
    with tempfile.TemporaryDirectory(prefix="chromium") as profile:
        # The shell puts the pipes where Chromium wants them: 3 and 4 may be taken in this process.
        command = [
            *("bash", "-c", f'exec "$@" 3<&{read_there} 4>&{written_there}', "bash", program),
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={profile}"),
        ]
        process = subprocess.Popen(
            command,
            pass_fds=(read_there, written_there),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_there)
        os.close(written_there)
        try:
            yield Browser(written_here, read_here)
        finally:
            os.close(written_here)
            os.close(read_here)
            process.terminate()
            process.wait()
