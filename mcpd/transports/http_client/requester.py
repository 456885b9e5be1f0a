"""Every HTTP request of one client: the program's header fields, those of the session, and what opens doors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from inspect import isawaitable

from yarl import URL

from ...channel import Heading
from ...errors import HttpError
from ...printable import printable
from .direct import Prepared
from .fields import checked
from .link import Link, Reply
from .options import Challenge, HttpOptions

__all__ = ["EVENTS", "JSON", "Requester"]

JSON = "application/json"
EVENTS = "text/event-stream"

_POST = {"Content-Type": JSON, "Accept": f"{JSON}, {EVENTS}"}
_PREPARED = 200
_ATTEMPTS = 3
"""So often a request that is refused is shown to the hook."""

_LONGEST_SESSION = 1024


class Requester:
    """Sends requests to one server."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.options: HttpOptions = link.options
        self.session: dict[str, str] = {}
        """The header field of the session; empty if there is none."""
        self.version: dict[str, str] = {}
        """The header field of a session's version."""
        self._prepared: dict[Heading, Mapping[str, str] | Prepared] = {}
        """The fields of messages that were sent, by their headings: most calls of a client look like one before."""

        headers = self.options.headers
        self._fixed: Mapping[str, str] | None = None
        if headers is None or isinstance(headers, Mapping):
            self._fixed = checked(headers or {}, "headers")
        self._is_plain = self._fixed is not None and self.options.authenticate is None
        """Whether the fields of the program are always the same."""
        self._granted: Mapping[str, str] = {}
        self._granting = asyncio.Lock()

    async def post(self, heading: Heading, body: bytes) -> Reply:
        """Send a message. Raises as `Link.request`."""
        if not self._is_plain:
            return await self.request("POST", self.link.url, self._fields(heading), body)

        prepared = self._prepared.get(heading)
        if prepared is None:
            if len(self._prepared) >= _PREPARED:
                self._prepared.clear()
            fields = {**(self._fixed or {}), **self._fields(heading)}
            prepared = self._prepared[heading] = self.link.prepared(fields)
        return await self.link.request("POST", self.link.url, prepared, body)

    def _fields(self, heading: Heading) -> dict[str, str]:
        """What a message says of itself."""
        fields = dict(_POST)
        if heading.in_session:
            fields.update(self.session)
        if heading.version is not None:
            fields["MCP-Protocol-Version"] = heading.version
        fields.update(heading.fields)
        return fields

    async def request(self, method: str, url: URL, fields: Mapping[str, str], body: bytes | None = None) -> Reply:
        """Send a request with these fields besides those that all have. Raises as `Link.request`."""
        attempt = 0
        while True:
            granted = self._granted
            own = self._fixed if self._fixed is not None else await self._asked_for()
            reply = await self.link.request(method, url, {**own, **granted, **fields}, body)

            authenticate = self.options.authenticate
            if reply.status not in (401, 403) or authenticate is None or attempt == _ATTEMPTS:
                return reply
            attempt += 1
            try:
                if not await self._ask_for_more(reply, url, granted, attempt):
                    return reply
            except BaseException:
                reply.close()
                raise
            reply.close()

    async def _asked_for(self) -> Mapping[str, str]:
        """What the program's function says now."""
        headers = self.options.headers
        assert callable(headers)
        given = headers()
        return checked(await given if isawaitable(given) else given, "the function headers")

    async def _ask_for_more(self, reply: Reply, url: URL, granted: Mapping[str, str], attempt: int) -> bool:
        """Show the refusal to the program's hook, unless another request did meanwhile; whether to try again."""
        authenticate = self.options.authenticate
        assert authenticate is not None
        values = tuple(reply.headers.getall("WWW-Authenticate", ()))
        challenge = Challenge(str(url), reply.status, values, attempt)
        async with self._granting:
            if self._granted is granted:
                given = await authenticate(challenge)
                if given is None:
                    return False
                self._granted = checked(given, "what authenticate gave")
        return True

    def remember_session(self, reply: Reply) -> None:
        """Keep the session that the answer to `initialize` names. Raises HttpError for one that cannot be said."""
        values = reply.headers.getall("Mcp-Session-Id", ())
        if not values:
            return
        value = values[0]
        if not value or len(value) > _LONGEST_SESSION or not all(0x21 <= ord(c) <= 0x7E for c in value):
            text = f"{self.link.name}: bad header Mcp-Session-Id: {printable(value, 60)!r} is no visible ASCII"
            raise HttpError(text, reply.status)
        self.session = {"Mcp-Session-Id": value}
        self._prepared.clear()
