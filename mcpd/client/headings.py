"""Headers of a client's messages, for transports that have headers: version, method, name, and mirrored arguments.

The session computes them while it still has the message as values. No I/O. Spec: 2026-07-28
basic/transports/streamable-http, request metadata; 2025-11-25 basic/transports, version header.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw
from msgspec.json import decode

from mcpd.client.limits import Faults
from mcpd.errors import RegistrationError
from mcpd.protocol.channel import Heading
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.methods import SUBJECTS
from mcpd.protocol.printable import printable
from mcpd.protocol.types.tools import Tool
from mcpd.protocol.wire.headers import Mirror, encode_value, mirrors

_KEPT = 200
"""Maximum number of cached headings."""


class Headings:
    """The headers of one client."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._mirrors: dict[str, tuple[Mirror, ...]] = {}
        """Mirrored arguments, by the name of the tool."""
        self._kept: dict[tuple[str, str | None, str], Heading] = {}
        self._other = Heading(is_request=False, in_session=False)
        self._request = Heading(is_request=True)

    def inherit(self, earlier: Headings) -> None:
        """Use the mirrored arguments of an earlier connection until the tools are listed again."""
        self._mirrors = earlier._mirrors

    def set_version(self, version: str, *, in_session: bool) -> None:
        """Use this version from now on."""
        self._other = Heading(is_request=False, in_session=in_session, version=version)
        self._request = Heading(is_request=True, in_session=in_session, version=version)

    def for_other(self) -> Heading:
        """Return the headers of a notification or response."""
        return self._other

    def for_request(self, method: str, members: Mapping[str, Any], version: str | None) -> Heading:
        """Return the headers of a request. `version` is the version in its `_meta`; None in sessions."""
        if version is None:
            return self._request

        named = SUBJECTS.get(method)
        name = None if named is None else _value(members.get(named))
        if name is None or (isinstance(name, str) and name not in self._mirrors):
            return self._plain(method, name, version)

        fields = [("Mcp-Method", method)]
        if isinstance(name, str):
            fields.append(("Mcp-Name", encode_value(name).decode("ascii")))
            if method == "tools/call" and name in self._mirrors:
                arguments = _value(members.get("arguments"))
                fields += _mirrored(self._mirrors[name], arguments)
        return Heading(is_request=True, in_session=False, version=version, fields=tuple(fields))

    def _plain(self, method: str, name: str | None, version: str) -> Heading:
        """Return the headers of a request without mirrored arguments, from a cache."""
        found = self._kept.get((method, name, version))
        if found is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            named = () if name is None else (("Mcp-Name", encode_value(name).decode("ascii")),)
            fields = (("Mcp-Method", method), *named)
            found = Heading(is_request=True, in_session=False, version=version, fields=fields)
            self._kept[method, name, version] = found
        return found

    def set_tools(self, tools: Sequence[Tool]) -> list[Tool]:
        """Remember the mirrored arguments, and return the tools without those whose annotations are invalid
        (S26-074).
        """
        if self._request.in_session:
            return list(tools)
        kept, learnt = [], {}
        for tool in tools:
            try:
                found = mirrors(_value(tool.input_schema))
            except RegistrationError as error:
                text = "the tool %s is left out: %s"
                self._faults.log(logging.WARNING, text, printable(tool.name), printable(error, 300))
                continue
            kept.append(tool)
            if found:
                learnt[tool.name] = found
        self._mirrors = learnt
        return kept


def _mirrored(found: Sequence[Mirror], arguments: Any) -> list[tuple[str, str]]:
    fields = []
    for mirror in found:
        value = arguments
        for key in mirror.path:
            value = _value(value.get(key)) if isinstance(value, Mapping) else None
        text = _as_text(value)
        if text is not None:
            fields.append((mirror.header, encode_value(text).decode("ascii")))
    return fields


def _as_text(value: Any) -> str | None:
    """Return an argument as the value of a header; None if it is not mirrored."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, int) else None


def _value(value: Any) -> Any:
    """Return a member of params, which may be raw JSON, as a value."""
    if not isinstance(value, (Raw, bytes)):
        return value
    try:
        return decode(value)
    except MALFORMED:
        return None
