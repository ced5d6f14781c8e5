# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real headless browser, Chromium, for tests of pages. It is driven through two pipes, so it opens no port and needs
only Python."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
REPLY_TIMEOUT = 120.0  # seconds for a reply; only a hang takes that long
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # the sandbox does not work for root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)

Box = tuple[float, float, float, float]  # x, y, width and height in pixels of a page
COUNT = """
async (picture, boxes) => {
  const image = new Image();
  image.src = "data:image/png;base64," + picture;
  await image.decode();
  const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
  context.drawImage(image, 0, 0);
  return boxes.map(([x, y, width, height]) => {
    const data = context.getImageData(x, y, Math.max(1, width), Math.max(1, height)).data, found = {};
    for (let at = 0; at < data.length; at += 4) {
      const color = "#" + (1 << 24 | data[at] << 16 | data[at + 1] << 8 | data[at + 2]).toString(16).slice(1);
      found[color] = (found[color] || 0) + 1;
    }
    return found;
  });
}
"""


def program() -> str | None:
    """Return the path of this machine's browser, or None."""
    return next((result for name in PROGRAMS if (result := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser has ended, is not responding, or has rejected a request."""


class Browser:
    """One browser with one page, closed at the end of the `with` block."""

    def __init__(self) -> None:
        result = program()
        if result is None:
            raise BrowserError("there is no Chromium on this machine")
        self.profile = tempfile.mkdtemp(prefix="muster-browser-")
        browser_in, self.to_browser = os.pipe()
        self.from_browser, browser_out = os.pipe()
        # it reads requests from descriptor 3 and replies on descriptor 4
        script = f'exec "$@" 3<&{browser_in} 4>&{browser_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", result, *OPTIONS, f"--user-data-dir={self.profile}", "about:blank"],
            pass_fds=(browser_in, browser_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(browser_in)
        os.close(browser_out)
        self.numbers = itertools.count(1)
        self.unread = b""
        self.session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.to_browser)  # the browser ends when this pipe closes
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.from_browser)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a DevTools request to the browser, and return its reply."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        with open(self.to_browser, "wb", closefd=False) as stream:
            stream.write(json.dumps(message).encode() + b"\0")
        while True:
            reply = self.next_message()
            if reply.get("id") == number:
                if "error" in reply:
                    raise BrowserError(f"{method}: {reply['error'].get('message')}")
                result: dict[str, Any] = reply["result"]
                return result

    def next_message(self) -> dict[str, Any]:
        """Return the browser's next message: a reply or an event."""
        until = time.monotonic() + REPLY_TIMEOUT
        while b"\0" not in self.unread:
            ready, _to, _bad = select.select([self.from_browser], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(self.from_browser, 1 << 20) if ready else b""
            if not piece:
                raise BrowserError("the browser is not responding" if not ready else "the browser has ended")
            self.unread += piece
        text, _zero, self.unread = self.unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, page: Path | None = None) -> None:
        """Open a file, or an empty page, and wait until it is loaded."""
        self.call("Page.navigate", url=page.resolve().as_uri() if page else "about:blank")
        while self.next_message().get("method") != "Page.loadEventFired":
            pass

    def show(self, width: int, dark: bool = False, height: int = 900, medium: str = "screen") -> None:
        """Set the window's size, in pixels, and the user's preferences."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=medium, features=[scheme])

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page; for a promise, its result."""
        output = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in output:
            raise BrowserError(str(output["exceptionDetails"].get("exception", {}).get("description", output)))
        return output["result"].get("value")

    def picture(self) -> bytes:
        """Return a screenshot of the whole page, as a PNG."""
        output = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(output["data"])

    def colors(self, picture: bytes, boxes: Sequence[Box]) -> list[dict[str, int]]:
        """Return how many pixels of each color, such as "#0072b2", each part of a picture has. Leaves the page."""
        self.open()
        arguments = json.dumps([base64.b64encode(picture).decode(), boxes])
        result: list[dict[str, int]] = self.evaluate(f"({COUNT})(...{arguments})")
        return result
