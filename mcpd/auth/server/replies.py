"""Parameters, answers and redirect URIs of the endpoints.

Spec: RFC 6749 sections 3.1, 4.1.2.1 and 5.2; OAuth 2.1 sections 2.3 and 4.1.1, RFC 8252 section 7.3; AUTH-125,
AUTH-127, AUTH-145, AUTH-148, AUTH-153.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlsplit

from mcpd.errors import McpdError
from mcpd.transports.routes import RouteRequest, RouteResponse

NO_STORE = (("Cache-Control", "no-store"), ("Pragma", "no-cache"))
_MAX_FIELDS = 64


class OAuthError(McpdError):
    """An OAuth error. `text` is a fixed text and contains nothing from the request."""

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
        """The text as a sentence."""
        text = self.text or self.error
        return f"{text[:1].upper()}{text[1:]}."


def json_answer(value: object, status: int = 200, *headers: tuple[str, str]) -> RouteResponse:
    """Return a JSON answer that is not cached."""
    exposed = ("Access-Control-Expose-Headers", "DPoP-Nonce, WWW-Authenticate")
    return RouteResponse(value, status, (*NO_STORE, exposed, *headers), "application/json")


def failed(error: OAuthError) -> RouteResponse:
    """Return an error as JSON. Spec: RFC 6749 section 5.2."""
    body = {"error": error.error}
    if error.text:
        body["error_description"] = error.text
    return json_answer(body, error.status, *error.headers)


def redirect(url: str, status: int = 302) -> RouteResponse:
    """Return a redirect without a referrer."""
    return RouteResponse(b"", status, (("Location", url), *NO_STORE, ("Referrer-Policy", "no-referrer")))


def query(request: RouteRequest) -> dict[str, str]:
    """Return the parameters of the URL. Raises OAuthError if one is repeated."""
    return _once(request.query_string)


def form(request: RouteRequest) -> dict[str, str]:
    """Return the fields of a form. Raises OAuthError if it is not a form or a field is repeated."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise OAuthError("invalid_request", "the body must be application/x-www-form-urlencoded")
    try:
        return _once(request.body.decode("ascii"))
    except UnicodeDecodeError:
        raise OAuthError("invalid_request", "the body is not a form") from None


def _once(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise OAuthError("invalid_request", "the parameters are malformed") from None

    found = dict(pairs)
    if len(found) != len(pairs):
        # RFC 8707 allows several `resource` parameters; this server has only one resource.
        raise OAuthError("invalid_request", "a parameter is repeated")
    # A parameter without a value counts as missing.
    return {name: value for name, value in found.items() if value}


_MAX_URI_CHARACTERS = 1024
# Matched as text, because URL parsers may disagree about the host of an unusual URL.
_loopback = re.compile(r"(http://(?:127\.0\.0\.1|\[::1\]|localhost))(?::\d{1,5})?((?:[/?][^#]*)?)").fullmatch
_https = re.compile(
    r"https://([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?([/?][^#]*)?"
).fullmatch


def why_not(uri: str) -> str:
    """Return why a redirect URI cannot be registered, or ""."""
    is_plain = uri.isascii() and uri.isprintable() and not any(c in uri for c in ' "\\<>^`{|}*')
    if not is_plain or len(uri) > _MAX_URI_CHARACTERS:
        return "a redirect URI must be a URL of up to 1,024 characters without wildcards"
    if "#" in uri:
        return "a redirect URI must not have a fragment"
    if not _https(uri) and not _loopback(uri):
        return "a redirect URI must be https, or http on 127.0.0.1, [::1] or localhost"
    try:
        _ = urlsplit(uri).port
    except ValueError:  # an invalid address in brackets or an invalid port
        return "a redirect URI must have a valid address and port"
    return ""


def is_loopback_redirect(uri: str) -> bool:
    """Return whether a redirect URI leads to a program on the user's machine."""
    return _loopback(uri) is not None


def matching(registered: Iterable[str], asked: str) -> bool:
    """Return whether a requested URI was registered. The port of loopback URIs may differ."""
    own = _portless(asked)
    return not why_not(asked) and any(asked == one or (own is not None and own == _portless(one)) for one in registered)


def _portless(uri: str) -> tuple[str, str] | None:
    found = _loopback(uri)
    return None if found is None else (found[1], found[2])


def host_of(uri: str) -> str:
    """Return the host to show to users, with the port unless it is a loopback URI."""
    parts = urlsplit(uri)
    return (parts.hostname or "") if is_loopback_redirect(uri) else parts.netloc
