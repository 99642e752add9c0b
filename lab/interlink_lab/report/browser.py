"""A headless Chromium, driven over its debugging pipe: pictures of reports, and tests of them.

with Browser(program) as browser:
    browser.open(path)
    browser.value("document.title")
    browser.picture(Path("report.png"))
"""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

GUARD_S = 60.0  # against hangs, never a measure
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-default-apps", "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip
# Chromium wants its pipe at descriptors 3 and 4, wherever they are here.
START = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(given), fcntl.F_DUPFD, 10) for given in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class BrowserFailed(Exception):
    """The browser did not start, ended, or refused a command."""


def find() -> Path | None:
    """A Chromium of this machine."""
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return Path(path)
    return None


class Browser:
    """One page. `console`, `requests`: what it said and asked for, since it was opened."""

    def __init__(self, program: Path) -> None:
        self.program = program
        self.console: list[str] = []
        self.requests: list[str] = []
        self._rest = b""
        self._number = 0
        self._session: str | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="lab-browser-", ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = [str(self.program), *FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", START, str(theirs_in), str(theirs_out), *command],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "HOME": self._folder.name},
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            pages = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
            target = (
                pages[0]["targetId"] if pages else self.call("Target.createTarget", url="about:blank")["targetId"]
            )
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        """The whole process group: it began with our child, whose pid is taken until `wait`."""
        os.close(self._out)
        os.close(self._in)
        try:
            self._process.wait(5)  # it ends when its pipe does
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._folder.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the DevTools protocol and its answer. BrowserFailed."""
        self._number += 1
        row: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            row["sessionId"] = self._session
        try:
            os.write(self._out, json.dumps(row).encode() + b"\0")
        except OSError as exc:
            raise BrowserFailed(f"{method}: {exc}") from exc
        until = time.monotonic() + GUARD_S
        while True:
            message = self._message(until)
            if message.get("id") == self._number:
                if "error" in message:
                    raise BrowserFailed(f"{method}: {message['error'].get('message')}")
                result: dict[str, Any] = message["result"]
                return result
            self._event(message)

    def _message(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], max(0.0, until - time.monotonic()))[0]:
                raise BrowserFailed(f"no answer in {GUARD_S:g} s")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise BrowserFailed("the browser ended")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _event(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.console.append(f"{params['type']}: {[a.get('value') for a in params['args']]}")
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.console.append(f"exception: {details.get('exception', {}).get('description', details['text'])}")
        elif method == "Log.entryAdded":
            self.console.append(f"{params['entry']['level']}: {params['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def window(self, width: int, height: int, dark: bool = False) -> None:
        """Size in px and colours of the page."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path: Path, anchor: str = "") -> None:
        """Load a report and wait until it is drawn."""
        self.console.clear()
        self.requests.clear()
        answer = self.call("Page.navigate", url=path.resolve().as_uri() + anchor)
        if answer.get("errorText"):
            raise BrowserFailed(f"{path}: {answer['errorText']}")
        self.until("document.documentElement?.dataset.ready === 'yes' && document.readyState === 'complete'")

    def until(self, expression: str) -> None:
        """Wait until an expression is true in the page. BrowserFailed after the guard time."""
        last = time.monotonic() + GUARD_S
        while not self.value(expression):
            if time.monotonic() > last:
                raise BrowserFailed(f"after {GUARD_S:g} s still not {expression}: {self.console}")
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """What an expression gives in the page. BrowserFailed where it throws."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserFailed(str(answer["exceptionDetails"].get("exception", {}).get("description")))
        return answer["result"].get("value")

    def key(self, name: str) -> None:
        """Press a key where the focus is."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def picture(self, to: Path, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        to.write_bytes(base64.b64decode(answer["data"]))
