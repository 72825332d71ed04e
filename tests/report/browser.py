"""A page in a real browser, driven over the DevTools protocol; nothing but a Chromium is needed.

The protocol is spoken through two pipes: messages are JSON, each ended by a zero byte.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import pytest

# The one of Debian, and what others call it.
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# A browser that starts on a busy machine takes seconds; one that hangs must not hold a test run.
_PATIENCE_S = 60.0

# The browser's file descriptors for what it is told and what it says.
_TOLD, _SAID = 3, 4

_LAUNCHER = (
    "import os, sys; told, said = map(int, sys.argv[1:3]);"
    f" os.dup2(told, {_TOLD}); os.dup2(said, {_SAID}); os.execv(sys.argv[3], sys.argv[3:])"
)

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

_OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    *("--hide-scrollbars", "--remote-debugging-pipe"),
)


MISSING = "no Chromium is installed, so no page is looked at: apt-get install chromium"


def executable() -> str | None:
    """The browser, or None where there is none."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


def running() -> Iterator[Browser]:
    """Yields a browser that runs, for a fixture; skips its tests where none is installed."""
    path = executable()
    if path is None:
        pytest.skip(MISSING)
    with Browser(path) as started:
        yield started


class Browser:
    """A browser with one page; a context manager.

    Attributes:
        complaints: What its console, its log and its scripts complained of since the page was
            opened.
    """

    def __init__(self, path: str) -> None:
        """Prepares it.

        Args:
            path: The browser's executable.
        """
        self._path = path
        self._number = 0
        self._session = ""
        self._waiting = b""
        self._events: list[dict[str, Any]] = []
        self.complaints: list[str] = []

    def __enter__(self) -> Browser:
        self._profile = tempfile.TemporaryDirectory(prefix="browser_", ignore_cleanup_errors=True)
        told, self._write = os.pipe()
        self._read, said = os.pipe()
        # Beyond the numbers that they get in the browser, so that none is lost on the way there.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (told, said)]
        launcher = [sys.executable, "-c", _LAUNCHER, *map(str, high), self._path]
        self._process = subprocess.Popen(
            [*launcher, *_OPTIONS, f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=high,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (told, said, *high):
            os.close(end)
        targets = self._call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def open(self, place: pathlib.Path | str, width: int, *, dark: bool, height: int = 900) -> None:
        """Shows a page in a window of some width, in CSS pixels.

        Args:
            place: A file, or an address.
            width: The window's width.
            dark: Whether the reader prefers dark pages.
            height: The window's height.
        """
        self.complaints.clear()
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        url = place if isinstance(place, str) else place.resolve().as_uri()
        # Going to another part of the page that is shown loads nothing.
        if "loaderId" in self._call("Page.navigate", url=url):
            self._until("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, as JSON can tell it.

        Raises:
            RuntimeError: It threw.
        """
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait_for(self, shown: Callable[[str], bool]) -> str:
        """The text of the page, as soon as it is what is waited for.

        Args:
            shown: What is asked of the text; white space counts as one blank.

        Raises:
            TimeoutError: It is not shown in time.
        """
        end = time.monotonic() + _PATIENCE_S
        while not shown(text := " ".join(str(self.evaluate(_TEXT)).split())):
            if time.monotonic() > end:
                raise TimeoutError(f"not shown within {_PATIENCE_S:.0f} s; the page says: {text}")
            time.sleep(0.3)
        return text

    def press(self, key: str) -> None:
        """Presses and releases a key, such as "Tab" or "Enter"."""
        codes = {"Tab": 9, "Enter": 13}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes[key],
                **(text if kind == "keyDown" else {}),
            )

    def point(self, x: float, y: float) -> None:
        """Moves the pointer to a place in the window."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, file: pathlib.Path, *, whole: bool = True) -> None:
        """Writes all of the page, or what the window shows of it, as a PNG."""
        answer = self._call("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(answer["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answer = self._message(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _until(self, event: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not any(seen["method"] == event for seen in self._events):
            self._message(deadline)
        self._events.clear()

    def _message(self, deadline: float) -> dict[str, Any]:
        """The next message; what is no answer is also kept for who waits for it."""
        while b"\0" not in self._waiting:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise TimeoutError(f"the browser has said nothing for {_PATIENCE_S:.0f} s")
            data = os.read(self._read, 1 << 20)
            if not data:
                raise RuntimeError(f"the browser ended with status {self._process.wait(10)}")
            self._waiting += data
        text, _, self._waiting = self._waiting.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self._events.append(message)
            self._note(message["method"], message["params"])
        return message

    def _note(self, method: str, said: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(f"exception: {json.dumps(said['exceptionDetails'])}")
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
            self.complaints.append(f"console: {json.dumps(said['args'])}")
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"log: {said['entry']['text']}")
