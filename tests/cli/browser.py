"""A real Chromium, driven without a window through the WebDriver protocol (W3C)."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import urllib.error
import urllib.request
from pathlib import Path

from servers import chromium_binaries, free_port, private_directory, running

KEYS = {"tab": "\ue004", "enter": "\ue007"}


class Browser:
    """One window.

    Args:
        url: of the driver's session.
    """

    def __init__(self, url):
        self._url = url

    def _call(self, method, path, **body):
        data = json.dumps(body).encode() if method == "POST" else None
        request = urllib.request.Request(
            self._url + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, path):
        self._call("POST", "/url", url=path.absolute().as_uri())

    def run(self, script, *arguments):
        """Run a script in the page, from outside of it, and return what it returns."""
        return self._call("POST", "/execute/sync", script=script, args=list(arguments))

    def resize(self, width, height):
        self._call("POST", "/window/rect", width=width, height=height)

    def press(self, *keys):
        """Press keys, one after the other."""
        strokes = [
            {"type": kind, "value": KEYS[key]} for key in keys for kind in ("keyDown", "keyUp")
        ]
        actions = [{"type": "key", "id": "keyboard", "actions": strokes}]
        self._call("POST", "/actions", actions=actions)

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def complaints(self):
        """What the console was told since the last question."""
        entries = self._call("POST", "/se/log", type="browser")
        return [entry["message"] for entry in entries]

    def pdf(self):
        """The page as it would be printed."""
        return base64.b64decode(self._call("POST", "/print"))

    def close(self):
        self._call("DELETE", "")


@contextlib.contextmanager
def open_browser():
    """Start a Chromium of the tests' own; nothing of it is left afterwards."""
    chromium, driver = chromium_binaries()
    port = free_port()
    base = f"http://127.0.0.1:{port}"

    def ready():
        urllib.request.urlopen(f"{base}/status", timeout=30).close()

    with (
        private_directory("chromium", "") as home,
        running([driver, f"--port={port}"], port, log=home / "driver.log", ready=ready),
    ):
        session = _new_session(base, chromium, home)
        browser = Browser(f"{base}/session/{session}")
        try:
            yield browser
        finally:
            with contextlib.suppress(urllib.error.URLError):  # the driver's end ends it too
                browser.close()
            with contextlib.suppress(OSError):  # it ends without a whole answer
                # To a signal it listens only ten seconds later.
                urllib.request.urlopen(f"{base}/shutdown", timeout=30).close()


def _new_session(base, chromium, home: Path):
    flags = ["--headless=new", "--disable-gpu", f"--user-data-dir={home / 'profile'}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium's own refuses to run as root
    capabilities = {
        "browserName": "chrome",
        "goog:chromeOptions": {"binary": chromium, "args": flags},
        "goog:loggingPrefs": {"browser": "ALL"},
    }
    body = json.dumps({"capabilities": {"alwaysMatch": capabilities}}).encode()
    request = urllib.request.Request(
        f"{base}/session", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["value"]["sessionId"]
