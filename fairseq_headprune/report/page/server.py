"""Serves the report page on this machine only; the page in the browser is loaded again whenever it changes."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_WATCH = Path(__file__).with_name("static") / "watch.html"


class PageServer(ThreadingHTTPServer):
    """Serves a page at a free port of 127.0.0.1: ``/`` watches ``/version`` and shows ``/page`` in a frame.

    Args:
        version: returns a text that changes when the page has to be made again.
        make: makes the page.
    """

    daemon_threads = True

    def __init__(self, version: Callable[[], str], make: Callable[[], str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.version, self._make = version, make
        self._made: tuple[str, str] | None = None
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://127.0.0.1:{self.server_port}/"

    def page(self) -> str:
        """Return the page of the current version, which is made once."""
        with self._lock:
            version = self.version()
            if self._made is None or self._made[0] != version:
                self._made = version, self._make()
            return self._made[1]


class _Handler(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        """Answer one request."""
        # Another site could otherwise read the page under a name of its own that leads to 127.0.0.1.
        if self.headers.get("Host") not in (
            f"127.0.0.1:{self.server.server_port}",
            f"localhost:{self.server.server_port}",
        ):
            return self._answer(403, "this page is for this machine only")
        answers: dict[str, Callable[[], str]] = {
            "/": lambda: _WATCH.read_text(encoding="utf-8"),
            "/version": self.server.version,
            "/page": self.server.page,
        }
        if self.path not in answers:
            return self._answer(404, "there is no such page")
        try:
            text = answers[self.path]()
        except (ValueError, OSError) as error:
            return self._answer(500, str(error))
        return self._answer(200, text, "text/plain" if self.path == "/version" else "text/html")

    def _answer(self, status: int, text: str, kind: str = "text/plain") -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of single requests."""
