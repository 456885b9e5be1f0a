"""The documents of proxies and guests: each is given once, to the frame that it is for, and is 410 afterwards.

A proxy's response has its own script and may frame its guest, and nothing else. A guest's response has the View's
policy, which stays when the View is written into it. Both say who may frame them, and where their browser reports what
the policy blocked: on their own origin. What these documents know of each other is written in here, as constants.

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
from mcpd.extensions.ui.assets import bundled_folder
from mcpd.http.pages import PageAnswer
from mcpd.http.request import HttpRequest
from mcpd.protocol.jsonrpc import encode
from mcpd.transports.authentication import Refusal

PAGE_NAME = "mcpd.localhost"
WARM_NAME = f"warm.{PAGE_NAME}"
"""Where the page finds an empty document of the site of all proxies."""
_PLAIN_NAME = "localhost"
_PLAIN_SANDBOX = "127.0.0.1"


class Place(Struct, frozen=True, kw_only=True):
    """Where the frames of one View are. `*_host` is the Host header of requests there, `*_path` their path."""

    page_origin: str
    proxy_host: str
    proxy_path: str
    guest_host: str
    guest_path: str
    proxy_report: str
    guest_report: str
    """The paths that take reports of violations."""

    @property
    def proxy_origin(self) -> str:
        """The origin of the proxy's frame."""
        return f"http://{self.proxy_host}"

    @property
    def proxy_url(self) -> str:
        """What the page gives its frame."""
        return f"http://{self.proxy_host}{self.proxy_path}"

    @property
    def guest_origin(self) -> str:
        """The origin of the guest's address, which is its own in all profiles but `opaque`."""
        return f"http://{self.guest_host}"

    @property
    def guest_url(self) -> str:
        """What the proxy gives its frame."""
        return f"http://{self.guest_host}{self.guest_path}"


class Origins(Struct, frozen=True):
    """Of one preview: the page's port, and that of the sandbox."""

    port: int
    sandbox_port: int

    def url(self, token: str, *, is_plain: bool = False) -> str:
        """What the user opens; the token is behind the `#`, which no server and no other page is told."""
        return f"http://{_PLAIN_NAME if is_plain else PAGE_NAME}:{self.port}/#{token}"

    def page_origin(self, host: str | None) -> str | None:
        """The page's origin for a request with this Host header; None for a host that the page does not have."""
        for name in (PAGE_NAME, _PLAIN_NAME):
            if host is not None and host.lower() == f"{name}:{self.port}":
                return f"http://{name}:{self.port}"
        return None

    def is_page(self, host: str | None, origin: str | None) -> bool:
        """Whether a request comes from the page, to the host that this page was loaded from."""
        expected = self.page_origin(host)
        return expected is not None and origin == expected

    def is_plain(self, page_origin: str) -> bool:
        """Whether the page is where the names under `mcpd.localhost` are not found."""
        return page_origin == f"http://{_PLAIN_NAME}:{self.port}"

    def sandbox(self, page_origin: str) -> str:
        """The source in the page's `frame-src`.

        All Views have the same: a policy cannot be changed while its page is shown, and their names are made later.
        """
        name = _PLAIN_SANDBOX if self.is_plain(page_origin) else f"*.{PAGE_NAME}"
        return f"http://{name}:{self.sandbox_port}"

    def new_place(self, page_origin: str) -> Place:
        """Addresses for one more View of this page, which nobody can guess."""
        proxy, guest = token_hex(16), token_hex(16)
        if self.is_plain(page_origin):
            host = f"{_PLAIN_SANDBOX}:{self.sandbox_port}"
            return Place(
                page_origin=page_origin,
                proxy_host=host,
                proxy_path=f"/p-{proxy}/proxy",
                guest_host=host,
                guest_path=f"/v-{guest}/guest",
                proxy_report=f"/p-{proxy}/report",
                guest_report=f"/v-{guest}/report",
            )

        return Place(
            page_origin=page_origin,
            proxy_host=f"p-{proxy}.{PAGE_NAME}:{self.sandbox_port}",
            proxy_path="/proxy",
            guest_host=f"v-{guest}.{PAGE_NAME}:{self.sandbox_port}",
            guest_path="/guest",
            proxy_report="/report",
            guest_report="/report",
        )


OnReport = Callable[[bytes, bool], object]
"""Is given the body of a report, and whether the proxy's policy blocked it (then a navigation)."""

WAIT_SECONDS = 30.0
"""How long a document waits for its frame."""

_SANDBOX = re.compile(rf"https?://(?:[^/:]*\.)?{re.escape(PAGE_NAME)}(?::|$)")

MOST_REPORTS = 200
MOST_REPORT_BYTES = 64 * 1024
_REPORT_SECONDS = 5.0
_REMEMBERED = 4096

_ALWAYS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)
_APART = ("Origin-Agent-Cluster", "?1")
"""For guests: each has a process of its own, where browsers have one for each origin. Proxies, which are ours, share
one: the page keeps an empty document there, so that it runs already when a View is opened."""

_WARM = "/warm"
_EMPTY = b'<!doctype html><html lang="en"><meta charset="utf-8"><title>Empty</title>'
# At an address of its own origin a View must find no document that has no policy: it could write scripts into that.
_REFUSED = (("Content-Security-Policy", "default-src 'none'; sandbox"), _APART, *_ALWAYS)

_GONE = Refusal(410, "This address was used already, or nobody came in time; open the app again.\n", _REFUSED)
_NOWHERE = Refusal(404, "There is nothing at this address.\n", _REFUSED)
_PREFETCH = Refusal(403, "This document is for the frame of an app, and is given once.\n", _REFUSED)


class _Document(Struct):
    """One that waits for its frame."""

    body: bytes
    policy: str
    headers: tuple[tuple[str, str], ...]
    timer: asyncio.TimerHandle


class _Reports(Struct):
    """Where the reports of one frame go, and how many still may come."""

    on_report: OnReport
    of_proxy: bool
    left: int = MOST_REPORTS


class Sandbox:
    """All documents of one preview that are waited for."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], _Document] = {}
        self._reports: dict[tuple[str, str], _Reports] = {}
        self._used: OrderedDict[tuple[str, str], None] = OrderedDict()

    def put(self, place: Place, grant: Grant, on_report: OnReport, *, title: str = "", openai: object = None) -> None:
        """The two documents of one View, for its frames to load soon; `openai` is what `window.openai` is to be."""
        guest_origin = "null" if grant.profile == "opaque" else place.guest_origin
        proxy, policy = _proxy(place, grant, guest_origin, title)
        self._wait(place.proxy_host, place.proxy_path, proxy, policy, ())

        policy = f"{policy_of(place, grant)}; report-uri {place.guest_report}"
        if not any(source.startswith(("http:", "ws:")) for source in _declared(grant)):
            # A View has the scheme https in a host, and so has "//cdn.example.com/x.js" there.
            policy += "; upgrade-insecure-requests"
        self._wait(place.guest_host, place.guest_path, _guest(place, openai), policy, (_APART,))

        self._reports[place.proxy_host, place.proxy_report] = _Reports(on_report, of_proxy=True)
        self._reports[place.guest_host, place.guest_report] = _Reports(on_report, of_proxy=False)

    def remove(self, place: Place) -> None:
        """The View is gone: what was not loaded yet never will be, and nothing more is reported."""
        for key in ((place.proxy_host, place.proxy_path), (place.guest_host, place.guest_path)):
            self._expire(key)
        self._reports.pop((place.proxy_host, place.proxy_report), None)
        self._reports.pop((place.guest_host, place.guest_report), None)

    def close(self) -> None:
        """Wait for nobody any more."""
        for key in list(self._waiting):
            self._expire(key)
        self._reports.clear()

    async def answer(self, request: HttpRequest) -> PageAnswer | Refusal:
        """A request to the port of the sandbox."""
        key = ((request.header(b"host") or "").lower(), request.path)
        if key[0].startswith(f"{WARM_NAME}:") and key[1] == _WARM:
            return PageAnswer(body=_EMPTY, headers=(("Content-Security-Policy", "default-src 'none'"), *_ALWAYS))
        if key in self._reports and request.method == "POST":
            return await self._take_report(self._reports[key], request)
        if key in self._used:
            return _GONE
        if key not in self._waiting:
            return _NOWHERE
        if not _is_frame(request):
            return _PREFETCH

        document = self._waiting[key]
        self._expire(key)
        headers = (("Content-Security-Policy", document.policy), *document.headers, *_ALWAYS, *forget_cookies(request))
        return PageAnswer(body=document.body, headers=headers)

    async def _take_report(self, reports: _Reports, request: HttpRequest) -> PageAnswer | Refusal:
        body = await request.read(MOST_REPORT_BYTES, _REPORT_SECONDS)
        if reports.left:
            reports.left -= 1
            reports.on_report(body, reports.of_proxy)
        return PageAnswer(status=204, headers=_REFUSED)

    def _wait(self, host: str, path: str, body: bytes, policy: str, headers: tuple[tuple[str, str], ...]) -> None:
        key = host, path
        timer = asyncio.get_running_loop().call_later(WAIT_SECONDS, self._expire, key)
        self._waiting[key] = _Document(body, policy, headers, timer)

    def _expire(self, key: tuple[str, str]) -> None:
        document = self._waiting.pop(key, None)
        if document is None:
            return
        document.timer.cancel()
        self._used[key] = None
        if len(self._used) > _REMEMBERED:
            self._used.popitem(last=False)


def _declared(grant: Grant) -> list[str]:
    csp = grant.csp
    return [] if csp is None else [*csp.sources("resourceDomains"), *csp.sources("connectDomains")]


def policy_of(place: Place, grant: Grant) -> str:
    """The policy of a View's document at this place.

    It may frame nothing of the sandbox, whatever it declares: what a listener says on its own to a request that it
    cannot read has no policy, and stands at the View's own origin.
    """
    csp = grant.csp
    if csp is not None and csp.frame_domains:
        strange = [source for source in csp.frame_domains if not _SANDBOX.match(source)]
        grant = replace(grant, csp=replace(csp, frame_domains=strange or None))
    return grant.policy((place.proxy_origin, place.page_origin))


def forget_cookies(request: HttpRequest) -> tuple[tuple[str, str], ...]:
    """A header if the browser sent cookies: none are ours.

    A View can set them for the site, which all Views and the page have in common; they would stay for years.
    """
    return (("Clear-Site-Data", '"cookies"'),) if b"cookie" in request.headers else ()


def _is_frame(request: HttpRequest) -> bool:
    """Whether a frame loads it. What loads ahead, or looks only, gets nothing, and uses nothing up."""
    get = request.headers.get
    if request.method != "GET" or b"prefetch" in get(b"sec-purpose", b"") + get(b"purpose", b"") + get(b"x-moz", b""):
        return False
    # Browsers that do not say what a document is for are old ones.
    return get(b"sec-fetch-dest", b"iframe") == b"iframe"


def _proxy(place: Place, grant: Grant, guest_origin: str, title: str) -> tuple[bytes, str]:
    """The proxy's document and its policy."""
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
    # In the scheme of its frame it is transparent, and so is a View in that scheme without a background of its own.
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


def _guest(place: Place, openai: object) -> bytes:
    """A guest's document until the View's is written over it."""
    about = {"proxy": place.proxy_origin, "openai": openai}
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>App</title></head>'
        f"<body><script>{_script('guest.js', about)}</script></body></html>"
    )
    return html.encode()


def _script(name: str, about: Mapping[str, object]) -> str:
    """One of our scripts with its constants: as JSON in which nothing can end the script."""
    constants = encode(about).decode().replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return _source(name).replace("/* constants */", constants)


@cache
def _source(name: str) -> str:
    path = os.path.join(bundled_folder(), "sandbox", name)
    with open(path, encoding="utf-8") as file:
        return file.read()
