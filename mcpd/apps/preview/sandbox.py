"""What browsers load from a preview: the page, and for each View the documents of its proxy and its guest.

    page     http://mcpd.localhost:P/
    proxy    http://p-<id>.mcpd.localhost:P2/proxy      the ids are random and new for each View
    guest    http://v-<id>.mcpd.localhost:P2/guest

Browsers resolve names under `localhost` to this machine. All names share the label `mcpd`, so that they belong to one
site: a View of another site than its page would have no storage. If a browser does not resolve the names, the page is
at `http://localhost:P/`, the frames are at `127.0.0.1` and differ by path, and guests have an opaque origin.

The document of a proxy or a guest is sent once, to the frame that it is for; after that its address is 410. The proxy
may run its own script and frame its guest only. The guest has the policy of the View, which remains when
the View is written into it. Both report violations of their policy to their own origin.

Spec: MCP Apps 2026-01-26, "Sandbox proxy"; rules APP-X-01 to -08 of docs/rules.toml.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache
from secrets import token_hex, token_urlsafe

from msgspec import Struct
from msgspec.structs import replace

from mcpd.apps.host.document import Grant
from mcpd.protocol.jsonrpc import encode
from mcpd.server.http.pages import PageAnswer
from mcpd.server.http.request import HttpRequest
from mcpd.transports.authentication import Refusal
from mcpd.transports.files import bundled_folder

PAGE_NAME = "mcpd.localhost"
WARM_NAME = f"warm.{PAGE_NAME}"
"""The host of an empty document of the same site as all proxies."""
_PLAIN_NAME = "localhost"
_PLAIN_SANDBOX = "127.0.0.1"

OnReport = Callable[[bytes, bool], object]
"""Receives the body of a report, and whether the policy of the proxy was violated, which means by a navigation."""

WAIT_SECONDS = 30.0
"""How long a document waits for its frame."""

MAX_REPORTS = 200
MAX_REPORT_BYTES = 64 * 1024
_REPORT_SECONDS = 5.0
_MAX_USED = 4096

_Headers = tuple[tuple[str, str], ...]
_ALWAYS: _Headers = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)
# Gives guests a process of their own, in browsers that have one for each origin.
#
# Proxies contain no code of others. They share a process, which the empty document of the page keeps running.
_OWN_PROCESS = ("Origin-Agent-Cluster", "?1")

_WARM_PATH = "/warm"
_EMPTY = b'<!doctype html><html lang="en"><meta charset="utf-8"><title>Empty</title>'
# A View must find no document without a policy at its own origin, because it could write scripts into it.
_REFUSED = (("Content-Security-Policy", "default-src 'none'; sandbox"), _OWN_PROCESS, *_ALWAYS)

_USED = Refusal(410, "This address was used already, or nobody came in time; open the app again.\n", _REFUSED)
_NOT_FOUND = Refusal(404, "There is nothing at this address.\n", _REFUSED)
_NOT_A_FRAME = Refusal(403, "This document is for the frame of an app, and is sent once.\n", _REFUSED)
_SANDBOX_SOURCE = re.compile(rf"https?://(?:[^/:]*\.)?{re.escape(PAGE_NAME)}(?::|$)")

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/json",
}
# The only dot begins the suffix, so nothing above the folder can be named.
_is_file = re.compile(rf"/[\w-]+(?:/[\w-]+)*\.({'|'.join(_TYPES)})", re.ASCII).fullmatch
_NO_SUCH_FILE = Refusal(404, "There is no such file of the preview.\n")
_OTHER_HOST = Refusal(403, "The preview is not reached by this name; open the address that it printed.\n")


# ------------------------------------------------------------------------------------------ addresses


class Place(Struct, frozen=True, kw_only=True):
    """The addresses of the frames of one View. `*_host` is the Host header of requests, `*_report` a path."""

    page_origin: str
    proxy_host: str
    proxy_path: str
    guest_host: str
    guest_path: str
    proxy_report: str
    guest_report: str

    @property
    def proxy_origin(self) -> str:
        return f"http://{self.proxy_host}"

    @property
    def proxy_url(self) -> str:
        return f"http://{self.proxy_host}{self.proxy_path}"

    @property
    def guest_origin(self) -> str:
        return f"http://{self.guest_host}"

    @property
    def guest_url(self) -> str:
        return f"http://{self.guest_host}{self.guest_path}"


class Origins(Struct, frozen=True):
    """The origins of one preview, given by the ports of its page and its sandbox."""

    port: int
    sandbox_port: int

    def url(self, token: str, *, is_plain: bool = False) -> str:
        """Return the address for the user. No server and no other page receives the token, which follows the `#`."""
        return f"http://{_PLAIN_NAME if is_plain else PAGE_NAME}:{self.port}/#{token}"

    def page_origin(self, host: str | None) -> str | None:
        """Return the origin of the page for a Host header, or None if the page does not have this host."""
        for name in (PAGE_NAME, _PLAIN_NAME):
            if host is not None and host.lower() == f"{name}:{self.port}":
                return f"http://{name}:{self.port}"
        return None

    def is_page(self, host: str | None, origin: str | None) -> bool:
        expected = self.page_origin(host)
        return expected is not None and origin == expected

    def is_plain(self, page_origin: str) -> bool:
        """Return whether the page was loaded without the names under `mcpd.localhost`."""
        return page_origin == f"http://{_PLAIN_NAME}:{self.port}"

    def sandbox(self, page_origin: str) -> str:
        # The same for all Views, because the policy of an open page cannot be changed and their names come later.
        name = _PLAIN_SANDBOX if self.is_plain(page_origin) else f"*.{PAGE_NAME}"
        return f"http://{name}:{self.sandbox_port}"

    def new_place(self, page_origin: str) -> Place:
        """Return addresses for one more View of the page, which nobody can guess."""
        proxy, guest = f"p-{token_hex(16)}", f"v-{token_hex(16)}"
        is_plain = self.is_plain(page_origin)
        host = f"{_PLAIN_SANDBOX}:{self.sandbox_port}"
        proxy_prefix, guest_prefix = (f"/{proxy}", f"/{guest}") if is_plain else ("", "")
        return Place(
            page_origin=page_origin,
            proxy_host=host if is_plain else f"{proxy}.{PAGE_NAME}:{self.sandbox_port}",
            proxy_path=f"{proxy_prefix}/proxy",
            guest_host=host if is_plain else f"{guest}.{PAGE_NAME}:{self.sandbox_port}",
            guest_path=f"{guest_prefix}/guest",
            proxy_report=f"{proxy_prefix}/report",
            guest_report=f"{guest_prefix}/report",
        )


# ------------------------------------------------------------------------------------------ the page


class PageFiles:
    """Answers requests to the port of the page with the files of a folder. They contain no secret."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.origins: Origins | None = None
        """Set once the ports are known. Before that, every request is refused."""

    async def answer(self, request: HttpRequest) -> PageAnswer | Refusal:
        origin = self.origins.page_origin(request.header(b"host")) if self.origins is not None else None
        if origin is None or self.origins is None:
            return _OTHER_HOST
        if request.method not in ("GET", "HEAD"):
            return Refusal(405, "The page's files are read with GET.\n", (("Allow", "GET, HEAD"),))
        if request.path == "/favicon.ico":
            return PageAnswer(status=204)

        found = _is_file("/index.html" if request.path == "/" else request.path)
        body = None if found is None else self._read(found[0])
        if found is None or body is None:
            return _NO_SUCH_FILE
        headers = (*_page_headers(origin, self.origins), *clear_cookies(request))
        return PageAnswer(body=body, content_type=_TYPES[found[1]], headers=headers)

    def _read(self, path: str) -> bytes | None:
        place = os.path.join(self._folder, *path.split("/"))
        try:
            # On Windows, a name such as con.js may be a device, and reading it would never end.
            if not os.path.isfile(place):
                return None
            with open(place, "rb") as file:
                return file.read()
        except OSError:
            return None


def _page_headers(origin: str, origins: Origins) -> _Headers:
    policy = "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data: blob:",
            "media-src data: blob:",
            f"connect-src {origin.replace('http:', 'ws:')}/api",
            f"frame-src {origins.sandbox(origin)}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    return (
        ("Content-Security-Policy", policy),
        *_ALWAYS,
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        _OWN_PROCESS,
    )


def clear_cookies(request: HttpRequest) -> _Headers:
    # Only a View can have set them. Views and the page belong to one site, so a cookie of one View would reach all of
    # them for years.
    return (("Clear-Site-Data", '"cookies"'),) if b"cookie" in request.headers else ()


# ------------------------------------------------------------------------------------------ Views


class _Document(Struct):
    body: bytes
    policy: str
    headers: _Headers
    timer: asyncio.TimerHandle


class _Reports(Struct):
    """The receiver of the reports of one frame, and how many more are accepted."""

    on_report: OnReport
    of_proxy: bool
    left: int = MAX_REPORTS


class Sandbox:
    """Answers requests to the port of the sandbox with the documents of proxies and guests."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], _Document] = {}
        self._reports: dict[tuple[str, str], _Reports] = {}
        self._used: OrderedDict[tuple[str, str], None] = OrderedDict()

    def put(self, place: Place, grant: Grant, on_report: OnReport, *, title: str = "", openai: object = None) -> None:
        """Add the two documents of a View, which its frames have to load soon. `openai` becomes `window.openai`."""
        guest_origin = "null" if grant.profile == "opaque" else place.guest_origin
        proxy, policy = _proxy_document(place, grant, guest_origin, title)
        self._add(place.proxy_host, place.proxy_path, proxy, policy, ())

        policy = f"{policy_of(place, grant)}; report-uri {place.guest_report}"
        csp = grant.csp
        declared = [] if csp is None else [*csp.sources("resourceDomains"), *csp.sources("connectDomains")]
        if not any(source.startswith(("http:", "ws:")) for source in declared):
            # In a host, a View is loaded by https, and so is "//cdn.example.com/x.js".
            policy += "; upgrade-insecure-requests"
        self._add(place.guest_host, place.guest_path, _guest_document(place, openai), policy, (_OWN_PROCESS,))

        self._reports[place.proxy_host, place.proxy_report] = _Reports(on_report, of_proxy=True)
        self._reports[place.guest_host, place.guest_report] = _Reports(on_report, of_proxy=False)

    def remove(self, place: Place) -> None:
        for key in ((place.proxy_host, place.proxy_path), (place.guest_host, place.guest_path)):
            self._expire(key)
        self._reports.pop((place.proxy_host, place.proxy_report), None)
        self._reports.pop((place.guest_host, place.guest_report), None)

    def close(self) -> None:
        for key in list(self._waiting):
            self._expire(key)
        self._reports.clear()

    async def answer(self, request: HttpRequest) -> PageAnswer | Refusal:
        key = ((request.header(b"host") or "").lower(), request.path)
        if key[0].startswith(f"{WARM_NAME}:") and key[1] == _WARM_PATH:
            return PageAnswer(body=_EMPTY, headers=(("Content-Security-Policy", "default-src 'none'"), *_ALWAYS))
        if key in self._reports and request.method == "POST":
            return await self._take_report(self._reports[key], request)
        if key in self._used:
            return _USED
        if key not in self._waiting:
            return _NOT_FOUND
        if not _is_for_frame(request):
            return _NOT_A_FRAME

        document = self._waiting[key]
        self._expire(key)
        headers = (("Content-Security-Policy", document.policy), *document.headers, *_ALWAYS, *clear_cookies(request))
        return PageAnswer(body=document.body, headers=headers)

    async def _take_report(self, reports: _Reports, request: HttpRequest) -> PageAnswer | Refusal:
        body = await request.read(MAX_REPORT_BYTES, _REPORT_SECONDS)
        if reports.left:
            reports.left -= 1
            reports.on_report(body, reports.of_proxy)
        return PageAnswer(status=204, headers=_REFUSED)

    def _add(self, host: str, path: str, body: bytes, policy: str, headers: _Headers) -> None:
        key = host, path
        timer = asyncio.get_running_loop().call_later(WAIT_SECONDS, self._expire, key)
        self._waiting[key] = _Document(body, policy, headers, timer)

    def _expire(self, key: tuple[str, str]) -> None:
        document = self._waiting.pop(key, None)
        if document is None:
            return
        document.timer.cancel()
        self._used[key] = None
        if len(self._used) > _MAX_USED:
            self._used.popitem(last=False)


def policy_of(place: Place, grant: Grant) -> str:
    # The View may frame nothing of the sandbox, whatever it declares: the answers of the HTTP server to requests that
    # it cannot read have no policy, and would be at the origin of the View.
    csp = grant.csp
    if csp is not None and csp.frame_domains:
        others = [source for source in csp.frame_domains if not _SANDBOX_SOURCE.match(source)]
        grant = replace(grant, csp=replace(csp, frame_domains=others or None))
    return grant.policy((place.proxy_origin, place.page_origin))


def _is_for_frame(request: HttpRequest) -> bool:
    # Return whether a frame loads the document. A prefetch must not use it up.
    get = request.headers.get
    if request.method != "GET" or b"prefetch" in get(b"sec-purpose", b"") + get(b"purpose", b"") + get(b"x-moz", b""):
        return False
    # Old browsers do not send the destination.
    return get(b"sec-fetch-dest", b"iframe") == b"iframe"


def _proxy_document(place: Place, grant: Grant, guest_origin: str, title: str) -> tuple[bytes, str]:
    # Return the document of a proxy and its policy.
    nonce = token_urlsafe(16)
    about = {
        "page": place.page_origin,
        "guest": guest_origin,
        "guestUrl": place.guest_url,
        "sandbox": grant.sandbox,
        "allow": grant.allow,
        "title": title,
    }
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src 'nonce-{nonce}'",
            f"style-src 'nonce-{nonce}'",
            f"frame-src {place.guest_url}",
            "base-uri 'none'",
            "form-action 'none'",
            f"frame-ancestors {place.page_origin}",
            f"report-uri {place.proxy_report}",
        )
    )
    # The proxy is transparent in both colour schemes, and so is a View without a background of its own.
    style = (
        ":root{color-scheme:light dark}html,body{margin:0;height:100%;background:transparent}"
        "iframe{display:block;border:0;width:100%;height:100%}"
    )
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sandbox proxy</title>'
        f'<style nonce="{nonce}">{style}</style></head>'
        f'<body><script nonce="{nonce}">{_script("proxy.js", about)}</script></body></html>'
    )

    return html.encode(), policy


def _guest_document(place: Place, openai: object) -> bytes:
    # Return the document of a guest, into which the View is written.
    about = {"proxy": place.proxy_origin, "openai": openai}
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>App</title></head>'
        f"<body><script>{_script('guest.js', about)}</script></body></html>"
    )
    return html.encode()


def _script(name: str, about: Mapping[str, object]) -> str:
    # Return one of our scripts with its constants, as JSON that cannot end the script element.
    constants = encode(about).decode().replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return _source(name).replace("/* constants */", constants)


@cache
def _source(name: str) -> str:
    with open(os.path.join(bundled_folder(), "sandbox", name), encoding="utf-8") as file:
        return file.read()
