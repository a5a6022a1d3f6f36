"""Headless Chromium (Debian's), driven through its DevTools protocol over two pipes: no driver, no library."""

import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

#: Seconds until an answer is given up.
PATIENCE = 60.0

# The browser reads commands from file descriptor 3 and answers on 4.
_LAUNCH = """import os, sys
os.dup2(int(sys.argv[1]), 3), os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])"""

# No sandbox: it starts neither as root nor in most containers, and only pages of the tests are opened.
_FLAGS = (
    "--headless=new --no-sandbox --remote-debugging-pipe --disable-gpu --no-first-run --disable-extensions "
    "--disable-dev-shm-usage --disable-background-networking --disable-component-update --disable-sync "
    "--hide-scrollbars --disable-breakpad"
)


def program() -> str | None:
    """Return the browser's path, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab.

    Attributes:
        problems: errors and warnings of the console, exceptions, and entries of the log (a blocked load is one).
        requests: addresses of everything that was loaded or tried.
    """

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser, self._session = browser, session
        self.problems: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters) -> dict:
        """Call one method of the protocol and return its result."""
        return self._browser.call(method, parameters, self._session, self)

    def take(self, event: dict) -> None:
        """Note an event."""
        name, told = event["method"], event["params"]
        if name == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif name == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(told["exceptionDetails"]))
        elif name == "Log.entryAdded" or (name == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning")):
            self.problems.append(json.dumps(told))

    def size(self, width: int, height: int) -> None:
        """Set the window's size in pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, path: Path | str) -> None:
        """Load a file or an address and wait until its scripts have run."""
        url = path if isinstance(path, str) else path.as_uri()
        self.call("Page.navigate", url=url)
        self.wait(f"document.readyState + location.href == {json.dumps('complete' + url)}")

    def wait(self, condition: str) -> None:
        """Wait until an expression of JavaScript is true."""
        end = time.monotonic() + PATIENCE
        while not self.value(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {condition}")
            time.sleep(0.02)

    def value(self, expression: str):
        """Evaluate JavaScript and return its value (JSON types)."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"]))
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        """The visible text of the first element that a selector finds."""
        return self.value(f"document.querySelector({json.dumps(selector)}).innerText")

    def hover(self, selector: str) -> None:
        """Move the mouse to the middle of an element, as a person would."""
        self.value(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        box = self.value(f"(() => {{const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); "
                         "return [b.x + b.width / 2, b.y + b.height / 2]})()")  # fmt: skip
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])

    def press(self, key: str) -> None:
        """Press and release a key such as ``Tab`` or ``ArrowRight``."""
        codes = {"Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])


class Browser:
    """The running program; use :func:`running`."""

    def __init__(self, folder: Path) -> None:
        """Start it with a profile of its own in this folder."""
        (read_ours, write_theirs), (read_theirs, write_ours) = _pipe(), _pipe()
        flags = [*_FLAGS.split(), f"--user-data-dir={folder}"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(read_theirs), str(write_theirs), program(), *flags, "about:blank"],
            pass_fds=(read_theirs, write_theirs), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder)},
        )  # fmt: skip
        os.close(read_theirs), os.close(write_theirs)
        self._read, self._write, self._rest, self._number = read_ours, write_ours, b"", 0

    def page(self) -> Page:
        """Open a tab."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        return Page(self, self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"])

    def call(self, method: str, parameters: dict, session: str | None = None, page: Page | None = None) -> dict:
        """Call one method and return its result; events that come meanwhile go to the page."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._write, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if page and answer.get("sessionId") == session and "method" in answer:
                page.take(answer)

    def _next(self) -> dict:
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], PATIENCE)[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def close(self) -> None:
        """End the program."""
        with contextlib.suppress(Exception):
            self.call("Browser.close", {})
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._read), os.close(self._write)


@contextlib.contextmanager
def running(folder: Path):
    """Start the browser, and end it."""
    browser = Browser(folder)
    try:
        yield browser
    finally:
        browser.close()


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are not numbered 3 or 4."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD, 10))
        os.close(end)
    return ends[0], ends[1]
