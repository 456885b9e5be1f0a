"""What the flow of a login asks of the world, and what it is told: no I/O here.

A part of the flow is a generator. It yields one `Step` at a time and is sent what came of it; `FetchError` is thrown
into it where a request had no answer. `run.py` drives it, tests do so with recorded answers.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlencode

from msgspec import DecodeError, Struct
from msgspec.json import decode

if TYPE_CHECKING:
    from mcpd.auth.fetch import Response

T = TypeVar("T")


class HttpStep(Struct, frozen=True):
    """One request to be made; it is answered by an `Answer`. What it says may be secret: its repr does not."""

    url: str
    what: str
    """What is asked for, for errors."""
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None

    def __repr__(self) -> str:
        return f"HttpStep({self.method} {self.url.partition('?')[0]})"


class Answer(Struct, frozen=True):
    """What came back, whatever its status. Names of headers are in small letters; its repr has no body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Answer({self.status}, {len(self.body)} bytes)"

    @classmethod
    def of(cls, response: Response) -> Answer:
        """The same, of what `fetch` gives."""
        return cls(response.status, {name.lower(): value for name, value in response.headers}, response.body)


class Listen(Struct, frozen=True):
    """Be ready for the browser's return; answered by the redirect URI, or None if `wanted` cannot be had."""

    wanted: str | None = None
    """The very redirect URI that was registered; None for any."""


class Visit(Struct, frozen=True):
    """Let the user visit a page; answered by the URL that the browser came back to."""

    url: str
    issuer: str
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Visit({self.url.partition('?')[0]})"


class Tell(Struct, frozen=True):
    """Show the user where to go with which code (device grant), and wait `seconds`; answered by None."""

    url: str
    code: str
    seconds: float
    complete_url: str | None = None
    is_first: bool = True


Step: TypeAlias = HttpStep | Listen | Visit | Tell
Steps: TypeAlias = Generator[Step, Any, T]


def ask(step: HttpStep) -> Steps[Answer]:
    """One request, typed."""
    found: Answer = yield step
    return found


def form(fields: Mapping[str, str | None]) -> bytes:
    """A body of `application/x-www-form-urlencoded`; members that are None are left out."""
    return urlencode({name: value for name, value in fields.items() if value is not None}).encode()


def json_object(body: bytes) -> dict[str, Any] | None:
    """A body as one JSON object; None if it is none."""
    try:
        found = decode(body)
    except (DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None
