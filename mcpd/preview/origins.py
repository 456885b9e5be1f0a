"""The names and addresses of the preview: page, proxies and guests, each on an origin of its own.

    page     http://mcpd.localhost:P/
    proxy    http://p-<id>.mcpd.localhost:P2/proxy      the ids are random, and new for each View
    guest    http://v-<id>.mcpd.localhost:P2/guest

Browsers find names under `localhost` on this machine. They share the label `mcpd`, so that they are of one site: a View
that is of another site than its page has no storage. Where a browser does not find them, the page is at
`http://localhost:P/`; then proxies and guests are at `127.0.0.1`, told apart by path, and guests are `opaque`.

Rules APP-X-01, APP-X-08 of docs/rules.toml.
"""

from __future__ import annotations

from secrets import token_hex

from msgspec import Struct

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
