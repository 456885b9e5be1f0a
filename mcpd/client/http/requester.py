"""Sends the HTTP requests of one client with its header fields, session, cookies and authorization.

Header fields of the program are checked before anything is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from http.cookies import CookieError, SimpleCookie

from yarl import URL

from mcpd.client.http.options import Challenge, HttpOptions, checked
from mcpd.client.http.pool import HttpPool, Reply, read_some
from mcpd.errors import HttpError
from mcpd.protocol.channel import Heading
from mcpd.protocol.printable import printable
from mcpd.transports.challenge import Authorization

MOST_COOKIES = 32
"""Number of cookies of a server, of up to 4,096 characters each, that a client keeps."""
_MOST_COOKIE = 4096


def _with_cookies(kept: Mapping[str, str], lines: Iterable[str], url: URL) -> dict[str, str]:
    """Return the cookies after these `Set-Cookie` lines of the server at `url` (RFC 6265 5.3).

    Load balancers use cookies to route a session to its node. They are sent to this server only, and forgotten when the
    client is closed.
    """
    cookies = dict(kept)
    for line in lines:
        try:
            found = SimpleCookie(line[: 2 * _MOST_COOKIE])
        except CookieError:
            continue
        for name, cookie in found.items():
            domain, path, host = cookie["domain"].lstrip(".").lower(), cookie["path"] or "/", url.host or ""
            is_for_us = not domain or host == domain or host.endswith(f".{domain}")
            is_below = url.path == path or url.path.startswith(path if path.endswith("/") else f"{path}/")
            if not is_for_us or not is_below or (cookie["secure"] and url.scheme != "https"):
                continue
            if cookie["max-age"].lstrip("-").isdecimal() and int(cookie["max-age"][:18]) <= 0:
                cookies.pop(name, None)
            elif len(cookie.coded_value) <= _MOST_COOKIE and (name in cookies or len(cookies) < MOST_COOKIES):
                cookies[name] = cookie.coded_value

    return cookies


JSON = "application/json"
EVENTS = "text/event-stream"

_POST = {"Content-Type": JSON, "Accept": f"{JSON}, {EVENTS}"}
_ATTEMPTS = 3
"""How often the `authenticate` function is called for one request."""

MOST_SESSION_CHARACTERS = 8000
"""Maximum length of a session id."""


class Requester:
    """Sends requests to one server."""

    def __init__(self, pool: HttpPool, authorization: Authorization | None = None) -> None:
        self.pool = pool
        self._authorization = authorization
        self.options: HttpOptions = pool.options
        self.session: dict[str, str] = {}
        """The header field of the session; empty without a session."""
        self.version: dict[str, str] = {}
        """The header field of the session's protocol version."""
        self._text = str(pool.url)

        headers = self.options.headers
        self._fixed: Mapping[str, str] | None = None
        if headers is None or isinstance(headers, Mapping):
            self._fixed = checked(headers or {}, "headers")
        """The program's fields, or None if a function returns them for each request."""
        self._granted: Mapping[str, str] = {}
        self._cookies: dict[str, str] = {}
        self._cookie: dict[str, str] = {}
        """The header field with all cookies of the server; empty without cookies."""
        self._authenticating = asyncio.Lock()

    async def post(
        self, heading: Heading, body: bytes, operation: str = "", hold: Callable[[bool], None] | None = None
    ) -> Reply:
        """Send a message. `hold` is called with True while somebody logs in for it, then with False. Raises like
        `request`.
        """
        if self._authorization is None:
            return await self.request("POST", self.pool.url, self._fields(heading), body)
        for name, value in heading.fields:
            if name == "Mcp-Name":
                operation = f"{operation} {value}"
        return await self._authorized("POST", self.pool.url, self._fields(heading), body, operation, hold)

    def _remember_cookies(self, reply: Reply) -> Reply:
        """Keep the cookies that a server sets, unless the program sends its own."""
        lines = reply.headers.getall("Set-Cookie", ())
        if not lines or any(name.lower() == "cookie" for name in self._fixed or ()):
            return reply

        cookies = _with_cookies(self._cookies, lines, self.pool.url)
        if cookies != self._cookies:
            self._cookies = cookies
            self._cookie = (
                {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())} if cookies else {}
            )
        return reply

    @property
    def has_token(self) -> bool:
        """Whether requests have a token, or may have one from the program or a login."""
        if self._fixed is None or self._authorization is not None:
            return True
        return any(name.lower() == "authorization" for name in (*self.pool.headers, *self._fixed, *self._granted))

    def _fields(self, heading: Heading) -> dict[str, str]:
        """The header fields that describe a message."""
        fields = {**_POST}
        if heading.in_session:
            fields.update(self.session)
        if heading.version is not None:
            fields["MCP-Protocol-Version"] = heading.version
        fields.update(heading.fields)
        return fields

    async def request(self, method: str, url: URL, fields: Mapping[str, str], body: bytes | None = None) -> Reply:
        """Send a request with these fields in addition to the common ones.

        Raises the errors of `HttpPool.request`, and AuthorizationFailed or AuthorizationRequired.
        """
        if self._authorization is not None:
            return await self._authorized(method, url, fields, body, "", None)
        attempt = 0
        while True:
            granted = self._granted
            own = self._fixed if self._fixed is not None else await self._program_fields()
            sent = {**own, **granted, **self._cookie, **fields}
            reply = self._remember_cookies(await self.pool.request(method, url, sent, body))

            authenticate = self.options.authenticate
            if reply.status not in (401, 403) or authenticate is None or attempt == _ATTEMPTS:
                return reply
            attempt += 1
            try:
                if not await self._authenticate(reply, url, granted, attempt):
                    return reply
            except BaseException:
                reply.close()
                raise
            reply.close()

    async def _authorized(
        self,
        method: str,
        url: URL,
        fields: Mapping[str, str],
        body: bytes | None,
        operation: str,
        hold: Callable[[bool], None] | None,
    ) -> Reply:
        """Send a request with authorization. After a refusal, obtain what is missing and repeat the request."""
        assert self._authorization is not None
        asked = self._authorization.begin(method, self._text if url is self.pool.url else str(url), operation)
        while True:
            own = self._fixed if self._fixed is not None else await self._program_fields()
            granted = await asked.fields()
            sent = {**own, **granted, **self._cookie, **fields}
            reply = self._remember_cookies(await self.pool.request(method, url, sent, body))
            asked.on_response(reply.headers)
            # Nobody has to log in to end a session.
            if reply.status not in (401, 403) or method == "DELETE":
                return reply

            if hold is not None:
                hold(True)
            try:
                # The body is read, because that allows the connection to be reused.
                await read_some(reply, self.pool)
                challenges = reply.headers.getall("WWW-Authenticate", ())
                if not await asked.refused(reply.status, challenges):
                    return reply
            except BaseException:
                reply.close()
                raise
            finally:
                if hold is not None:
                    hold(False)
            reply.close()

    async def _program_fields(self) -> Mapping[str, str]:
        return checked(await self.options.fields(), "the function headers")

    async def _authenticate(self, reply: Reply, url: URL, granted: Mapping[str, str], attempt: int) -> bool:
        """Call the program's `authenticate`, unless another request did meanwhile. Return whether to repeat the
        request.
        """
        authenticate = self.options.authenticate
        assert authenticate is not None
        values = tuple(reply.headers.getall("WWW-Authenticate", ()))
        challenge = Challenge(str(url), reply.status, values, attempt)
        async with self._authenticating:
            if self._granted is granted:
                given = await authenticate(challenge)
                if given is None:
                    return False
                self._granted = checked(given, "the result of authenticate")
        return True

    def remember_session(self, reply: Reply) -> None:
        """Keep the session id of the response to `initialize`. Raises HttpError for an invalid id."""
        values = reply.headers.getall("Mcp-Session-Id", ())
        if not values:
            return
        value = values[0]
        if not value:
            return
        if len(value) > MOST_SESSION_CHARACTERS:
            why = f"{len(value)} characters; the maximum is {MOST_SESSION_CHARACTERS}"
            raise HttpError(f"{self.pool.name}: the header Mcp-Session-Id has {why}", reply.status)
        if not all(0x20 <= ord(c) <= 0x7E for c in value):
            text = f"{self.pool.name}: the header Mcp-Session-Id {printable(value, 60)!r} must be printable ASCII"
            raise HttpError(text, reply.status)
        self.session = {"Mcp-Session-Id": value}
