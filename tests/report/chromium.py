"""A headless Chromium, driven over the pipe of its DevTools protocol: what a page does, says and looks like.

It has no network but what a test serves, and each test's page is one file. What the page's policy forbids, and what its
script breaks with, is kept in `Page.faults`.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
MAX_SECONDS = 90.0
KEYS = {"Tab": 9, "Enter": 13, "Home": 36, "End": 35, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def chromium_path() -> str:
    """The browser, a Debian package that tests/run installs. Raises: AssertionError without it."""
    path = next(filter(None, map(shutil.which, NAMES)), "")
    assert path, "no chromium: apt-get install chromium (bash tests/run does it)"
    return path


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session
        self.faults: list[str] = []
        """Violations of the policy, exceptions, errors on the console, requests."""

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def open(self, url: str, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Loads a page, and waits until its script has run."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height, scheme)
        self.browser.loaded.discard(self.session)
        answer = self.call("Page.navigate", url=url)
        assert not answer.get("errorText"), f"{url}: {answer['errorText']}"
        self.browser.wait(lambda: self.session in self.browser.loaded)

    def resize(self, width: int, height: int, scheme: str = "light") -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to. Raises: AssertionError where it throws."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        shared = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", **shared)
        if key == "Enter":
            self.call("Input.dispatchKeyEvent", type="char", text="\r", **shared)
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def screenshot(self, path: Path, full: bool = True) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])


class Browser:
    """One process. Messages are JSON, each ended by a zero byte."""

    def __init__(self, folder: str) -> None:
        to_read, self.writes = os.pipe()
        self.reads, to_write = os.pipe()
        command = [chromium_path(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command += ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--mute-audio"]
        command += ["--hide-scrollbars", f"--user-data-dir={folder}", "--remote-debugging-pipe"]

        # The protocol's pipes are descriptors 3 and 4.
        shell = ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash"]
        self.process = subprocess.Popen(
            [*shell, *command],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.poll = select.poll()  # select() takes no file numbers from 1024 on
        self.poll.register(self.reads, select.POLLIN)
        self.buffer, self.number = b"", 0
        self.answers: dict[int, dict[str, Any]] = {}
        self.loaded: set[str] = set()
        self.pages: dict[str, Page] = {}

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        os.write(self.writes, json.dumps(message).encode() + b"\0")
        self.wait(lambda: number in self.answers)
        answer = self.answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def wait(self, is_done: Any) -> None:
        end = time.monotonic() + MAX_SECONDS
        while not is_done():
            rest = end - time.monotonic()
            assert rest > 0 and self.poll.poll(1000 * rest), "the browser does not answer"
            chunk = os.read(self.reads, 1 << 20)
            assert chunk, f"the browser ended with {self.process.poll()}"
            *full, self.buffer = (self.buffer + chunk).split(b"\0")
            for message in full:
                self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self.answers[message["id"]] = message
            return
        session, method, parameters = message.get("sessionId", ""), message["method"], message["params"]
        if method == "Page.loadEventFired":
            self.loaded.add(session)
        if session not in self.pages:
            return
        faults = self.pages[session].faults
        if method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            faults.append(f"{parameters['entry']['source']}: {parameters['entry']['text']}")
        elif method == "Runtime.exceptionThrown":
            faults.append(
                f"exception: {parameters['exceptionDetails'].get('exception', parameters['exceptionDetails'])}"
            )
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert"):
            faults.append(f"console: {parameters['args']}")
        elif method == "Page.javascriptDialogOpening":
            faults.append(f"dialog: {parameters['message']}")
        elif method == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith("file:"):
            faults.append(f"request: {parameters['request']['url'][:200]}")

    def page(self) -> Page:
        """A new tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.pages[session] = Page(self, session)
        return self.pages[session]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        os.close(self.reads)
        os.close(self.writes)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a profile of its own, ended and swept afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(folder)
        try:
            yield browser
        finally:
            browser.close()
