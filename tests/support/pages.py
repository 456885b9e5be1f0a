"""A few pages on loopback for browser tests: a path gives a body and its headers, nothing else is served.

Lives here: the server. Never here: a page. Chromium finds any name under `localhost` on this machine, so one server
gives as many origins as a test needs: `pages.url("/x", "view")` is `http://view.localhost:<port>/x`.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["Pages"]


class Pages:
    """Pages that a test puts up, on a port of their own."""

    def __init__(self) -> None:
        self._pages: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.visited: list[str] = []
        """The paths that were asked for, as often as they were."""
        pages, visited = self._pages, self.visited

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                visited.append(self.path)
                body, headers = pages.get(self.path, (b"", {}))
                # Browsers ask for an icon by themselves; that is no finding.
                self.send_response(200 if self.path in pages else 204 if self.path == "/favicon.ico" else 404)
                for name, value in {"Content-Type": "text/html; charset=utf-8", **headers}.items():
                    self.send_header(name, value)
                if self.path != "/favicon.ico":
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Stay silent: what a page asked for in vain is on the browser's console."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def put(self, path: str, body: str, **headers: str) -> None:
        """Serve this text under this path; `content_security_policy=` becomes the header of that name."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._pages[path] = (body.encode(), named)

    def url(self, path: str, host: str = "page") -> str:
        """The address of a path at `<host>.localhost`, which is an origin of its own."""
        return f"http://{host}.localhost:{self._server.server_address[1]}{path}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
