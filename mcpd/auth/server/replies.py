"""What the endpoints answer with, and how their parameters are read.

Spec: RFC 6749 3.1, 4.1.2.1 and 5.2; AUTH-127, AUTH-148, AUTH-153.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode, urlsplit

from mcpd.errors import McpdError
from mcpd.server.registry.routes import RouteRequest, RouteResponse

NO_STORE = (("Cache-Control", "no-store"), ("Pragma", "no-cache"))
_MOST_FIELDS = 64


class OAuthError(McpdError):
    """A refusal with a name of OAuth's. `text` is fixed words of ours: nothing of the request."""

    def __init__(
        self, error: str, text: str = "", *, status: int = 400, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self.error = error
        self.text = text
        self.status = status
        self.headers = headers
        super().__init__(error)

    @property
    def sentence(self) -> str:
        """The text for people."""
        text = self.text or self.error
        return f"{text[:1].upper()}{text[1:]}."


def json_answer(value: object, status: int = 200, *headers: tuple[str, str]) -> RouteResponse:
    """JSON that nobody keeps."""
    exposed = ("Access-Control-Expose-Headers", "DPoP-Nonce, WWW-Authenticate")
    return RouteResponse(value, status, (*NO_STORE, exposed, *headers), "application/json")


def failed(error: OAuthError) -> RouteResponse:
    """A refusal to a program. Spec: RFC 6749 5.2."""
    said = {"error": error.error}
    if error.text:
        said["error_description"] = error.text
    return json_answer(said, error.status, *error.headers)


def redirect(url: str, *headers: tuple[str, str], status: int = 302) -> RouteResponse:
    """Send a browser elsewhere, which is not told from where."""
    return RouteResponse(b"", status, (("Location", url), *NO_STORE, ("Referrer-Policy", "no-referrer"), *headers))


def query(request: RouteRequest) -> dict[str, str]:
    """The parameters of a URL. Raises OAuthError if one came twice."""
    return _once(request.query_string)


def form(request: RouteRequest) -> dict[str, str]:
    """The fields of a form. Raises OAuthError for what is none, and if one came twice."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise OAuthError("invalid_request", "the body has to be application/x-www-form-urlencoded")
    try:
        return _once(request.body.decode("ascii"))
    except UnicodeDecodeError:
        raise OAuthError("invalid_request", "the body is no form") from None


def _once(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise OAuthError("invalid_request", "the parameters cannot be read") from None

    found = dict(pairs)
    if len(found) != len(pairs):
        # `resource` may come several times elsewhere (RFC 8707); there is one here.
        raise OAuthError("invalid_request", "a parameter came more than once")
    # A parameter without a value counts as one that did not come.
    return {name: value for name, value in found.items() if value}


_LONGEST = 1024
# By the text itself: two readers of URLs may differ about what the host of an odd one is.
_loopback = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]|localhost))(?::\d{1,5})?((?:[/?][^#]*)?)").fullmatch
_https = re.compile(
    r"https://([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?([/?][^#]*)?"
).fullmatch


def why_not(uri: str) -> str:
    """Why no client may register this redirect URI; "" if one may."""
    if len(uri) > _LONGEST or not uri.isascii() or not uri.isprintable() or any(c in uri for c in ' "\\<>^`{|}*'):
        return "a redirect URI is a URL of up to 1,024 characters, without wildcards"
    if "#" in uri:
        return "a redirect URI has no fragment"
    if not _https(uri) and not _loopback(uri):
        return "a redirect URI is https, or http on 127.0.0.1, [::1] or localhost"
    try:
        _ = urlsplit(uri).port
    except ValueError:  # what is in brackets, or behind the colon, is none
        return "a redirect URI has an address or a port that there is not"
    return ""


def is_loopback_redirect(uri: str) -> bool:
    """Whether it leads to a program on the user's own machine."""
    return _loopback(uri) is not None


def matching(registered: Iterable[str], asked: str) -> bool:
    """Whether a request may name this one: as it was registered, but for the port on loopback."""
    own = _portless(asked)
    return not why_not(asked) and any(asked == one or (own is not None and own == _portless(one)) for one in registered)


def _portless(uri: str) -> tuple[str, str] | None:
    found = _loopback(uri)
    return None if found is None else (found[1], found[2])


def host_of(uri: str) -> str:
    """The host that people are shown, with its port where that is part of who it is."""
    parts = urlsplit(uri)
    return (parts.hostname or "") if is_loopback_redirect(uri) else parts.netloc


def answer_url(uri: str, params: dict[str, str]) -> str:
    """The redirect URI with an answer behind it."""
    separator = "&" if "?" in uri else "?"
    return f"{uri}{separator}{urlencode(params)}"
