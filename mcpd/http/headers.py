"""The request headers of 2026-07-28 against the body: proxies route by the one, the server obeys the other.

Spec: 2026-07-28 basic/transports/streamable-http, request metadata and server validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Raw
from msgspec.json import Decoder

from mcpd.errors import HeaderMismatch
from mcpd.http.request import HttpRequest
from mcpd.protocol.jsonrpc import ABSENT, MALFORMED
from mcpd.protocol.methods import SUBJECTS
from mcpd.protocol.wire.headers import Mirror, decode_value, is_same

_VERSION, _METHOD, _NAME = b"mcp-protocol-version", b"mcp-method", b"mcp-name"

_decode = Decoder(dict[str, Any]).decode


def check_standard(
    request: HttpRequest, version: str, method: str, params: Raw, name: str | None = None, member: str | None = None
) -> None:
    """Hold `MCP-Protocol-Version`, `Mcp-Method` and `Mcp-Name` against the body (S26-060, S26-063, S26-072, S26-073).

    `name` is the expected `Mcp-Name`, if it was decoded already; else it is taken from `params`. `member` says
    where it stands there, for methods of extensions. Raises HeaderMismatch.
    """
    fields = request.headers
    member = SUBJECTS.get(method, member)
    if (
        not request.repeated
        and fields.get(_VERSION) == version.encode()
        and fields.get(_METHOD) == method.encode()
        and (member is None or (name is not None and _is_plainly(fields.get(_NAME), name)))
    ):
        return

    if request.repeated:
        for header, spelled in ((_VERSION, "MCP-Protocol-Version"), (_METHOD, "Mcp-Method"), (_NAME, "Mcp-Name")):
            if header in request.repeated:
                raise HeaderMismatch(f"Header mismatch: {spelled} came more than once")

    _compare("MCP-Protocol-Version", fields.get(_VERSION), version, is_encoded=False)
    _compare("Mcp-Method", fields.get(_METHOD), method, is_encoded=False)
    if member is not None:
        if name is None:
            name = _named(params, member)
        if name is not None or _NAME in fields:
            _compare("Mcp-Name", fields.get(_NAME), name, is_encoded=True)


def _compare(header: str, raw: bytes | None, value: str | None, *, is_encoded: bool) -> None:
    if raw is None:
        raise HeaderMismatch(f"Header mismatch: {header} is missing; the body says {_show(value)}")
    try:
        text = decode_value(raw) if is_encoded else _plain(raw)
    except ValueError as error:
        raise HeaderMismatch(f"Header mismatch: {header} {error}") from None
    if text != value:
        raise HeaderMismatch(f"Header mismatch: {header} says {_show(text)}, the body {_show(value)}")


def check_mirrors(request: HttpRequest, mirrors: Sequence[Mirror], arguments: Raw) -> None:
    """Hold the `Mcp-Param-*` headers of a tool against its arguments (S26-064 to S26-069). Raises HeaderMismatch.

    Headers that mirror nothing are none of our business (S26-070).
    """
    values: dict[str, Any] = {}
    if arguments is not ABSENT and len(arguments) > 0:
        try:
            values = _decode(arguments)
        except MALFORMED:
            pass  # no object: it mirrors nothing, and the tool will say what is wrong with it
    for mirror in mirrors:
        raw = request.headers.get(mirror.key)
        value = _at(values, mirror.path)
        if mirror.key in request.repeated:
            raise HeaderMismatch(f"Header mismatch: {mirror.header} came more than once")

        if raw is None:
            if value is not None:
                raise HeaderMismatch(
                    f"Header mismatch: {mirror.header} is missing; it repeats the argument {'.'.join(mirror.path)}"
                )
            continue

        try:
            text = decode_value(raw)
        except ValueError as error:
            raise HeaderMismatch(f"Header mismatch: {mirror.header} {error}") from None

        if value is None:
            raise HeaderMismatch(
                f"Header mismatch: {mirror.header} is there, the argument {'.'.join(mirror.path)} is not"
            )

        if not is_same(text, value):
            raise HeaderMismatch(
                f"Header mismatch: {mirror.header} says {_show(text)}, "
                f"the argument {'.'.join(mirror.path)} something else"
            )


def _is_plainly(raw: bytes | None, value: str) -> bool:
    """Whether a header says the value as it is; False also where it may still say it in Base64."""
    return raw is not None and raw == value.encode() and value.isascii() and value.isprintable() and raw[:2] != b"=?"


def _plain(raw: bytes) -> str:
    try:
        return raw.strip(b" \t").decode("ascii")
    except UnicodeDecodeError:
        raise ValueError("contains invalid characters") from None


def _named(params: Raw, member: str) -> str | None:
    try:
        value = _decode(params).get(member)
    except MALFORMED:
        return None
    return value if isinstance(value, str) else None


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(values, dict):
            return None
        values = values.get(key)
    return values


def _show(text: str | None) -> str:
    if text is None:
        return "nothing"
    return repr(text if len(text) <= 100 else text[:100] + "…")
