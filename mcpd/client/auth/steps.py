"""The steps of a login flow: HTTP requests and interactions with the user. No I/O.

A part of a flow is a generator. It yields one `Step` at a time and receives the result. `FetchError` is thrown into it
if a request got no response. `run` performs the steps; tests use recorded responses.
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
    """An HTTP request. The result is a `StepResponse`. The `repr` does not show its content, which may be secret."""

    url: str
    what: str
    """The name of the endpoint in error messages."""
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None

    def __repr__(self) -> str:
        return f"HttpStep({self.method} {self.url.partition('?')[0]})"


class StepResponse(Struct, frozen=True):
    """The response to an `HttpStep`, with any status. Header names are in lower case; the `repr` does not show the
    body.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"StepResponse({self.status}, {len(self.body)} bytes)"

    @classmethod
    def of(cls, response: Response) -> StepResponse:
        """Convert a response of `mcpd.auth.fetch`."""
        return cls(response.status, {name.lower(): value for name, value in response.headers}, response.body)


class ListenForRedirect(Struct, frozen=True):
    """Listen for the browser's redirect. The result is the redirect URI, or None if `wanted` is not available."""

    wanted: str | None = None
    """The registered redirect URI; None for any."""


class OpenBrowser(Struct, frozen=True):
    """Send the user to a page. The result is the URL that the browser was redirected to."""

    url: str
    issuer: str
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"OpenBrowser({self.url.partition('?')[0]})"


class ShowCode(Struct, frozen=True):
    """Show the user a page and the code to type there (device grant), then wait `seconds`. The result is None."""

    url: str
    code: str
    seconds: float
    complete_url: str | None = None
    is_first: bool = True


Step: TypeAlias = HttpStep | ListenForRedirect | OpenBrowser | ShowCode
Steps: TypeAlias = Generator[Step, Any, T]


def send(step: HttpStep) -> Steps[StepResponse]:
    """Yield a request, and return its response."""
    found: StepResponse = yield step
    return found


def form(fields: Mapping[str, str | None]) -> bytes:
    """Return a body of `application/x-www-form-urlencoded`, without the members that are None."""
    return urlencode({name: value for name, value in fields.items() if value is not None}).encode()


def json_object(body: bytes) -> dict[str, Any] | None:
    """Parse a body as a JSON object; None if it is not one."""
    try:
        found = decode(body)
    except (DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None
