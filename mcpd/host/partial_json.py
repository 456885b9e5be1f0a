"""Tool arguments while a model still writes them: unfinished JSON, closed by jiter so that it can be shown.

What waits for its end is left out: a key without a value, `tru`, half an escape, the `e+` of a number. Nothing is made
up: each string shown is a prefix of the real one, each number is written with the first digits of the real one, each
array lacks at most elements at its end, each object at most its last members. Once the text is complete the result
equals `json.loads(text)`, but that a lone surrogate becomes U+FFFD, since it could not be sent on.

Text that is no prefix of a JSON object, or is nested or sized beyond the limits, ends it: `broken` says why, and from
then on there is nothing to show. The reader never raises for what a model wrote.

Spec: MCP Apps 2026-01-26, `ui/notifications/tool-input-partial`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mcpd.errors import ConfigurationError

MAX_CHARS: Final = 4 * 1024 * 1024

# The text is read anew on each chunk while it is short, and then each time it has grown by 1/256, or may have ended:
# that keeps the reading linear in the length of the text however small the chunks are.
_READ_ALWAYS: Final = 4096
_GROWTH: Final = 256

_SPACE: Final = " \t\r\n"
_SURROGATE = re.compile("[\ud800-\udfff]")
# An escape; in the group one that is half a character, unless the text may go on with its other half.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|"
    r"\\(u[dD](?:[89abAB][0-9a-fA-F]{2}(?!(?:\\(?:u(?:[dD](?:[c-fC-F].?)?)?)?)?\Z)|[c-fC-F][0-9a-fA-F]{2}))|"
    r"\\.",
    re.DOTALL,
)


class PartialArguments:
    """One tool call's arguments as they arrive. Needs jiter, which the extra `apps` brings."""

    def __init__(self) -> None:
        self.broken = ""
        self._parts: list[str] = []
        self._count = 0
        self._seen = 0  # how many characters there were when they were last read
        self._spent = 0  # how many characters were read, over and over
        self._half = ""  # a surrogate that ended a chunk as it stands, where a character was cut in two
        self._shown: dict[str, Any] | None = None

    def feed(self, chunk: str) -> dict[str, Any] | None:
        """Read on; the arguments so far, or None if this chunk changed nothing that can be seen."""
        if self.broken or not chunk:
            return None
        chunk = self._with_whole_characters(chunk)
        self._parts.append(chunk)
        self._count += len(chunk)
        if self._count > MAX_CHARS:
            self._break(f"more than {MAX_CHARS} characters")
            return None

        has_grown = self._count <= _READ_ALWAYS or (self._count - self._seen) * _GROWTH >= self._count
        may_end = chunk.rstrip(_SPACE).endswith("}") and self._spent < 2 * _GROWTH * self._count
        found = self._read() if has_grown or may_end else None
        if found is None or found == self._shown:
            return None
        self._shown = found
        return found

    def whole(self) -> dict[str, Any] | None:
        """The arguments, None unless all of them have been written."""
        text = "".join(self._parts)
        try:
            return _from_json(_sendable(text)) if text.lstrip(_SPACE)[:1] == "{" else None
        except ValueError:
            return None

    def _read(self) -> dict[str, Any] | None:
        text = "".join(self._parts)
        self._parts, self._seen = [text], self._count
        self._spent += self._count
        start = text.lstrip(_SPACE)[:1]
        if not start:
            return None
        if start != "{":
            self._break("tool arguments are a JSON object")
            return None

        data = _sendable(text)
        try:
            return _from_json(data)
        except ValueError as error:
            # Only the strict reader tells what is wrong from what is unfinished.
            reason = str(error)
            if not reason.startswith("EOF"):
                self._break(reason)
                return None
            if reason.startswith("EOF while parsing a value"):
                data = data.rstrip(b"+-.eE")  # of a number there is what stands before
            return _from_json(data, "trailing-strings")

    def _break(self, reason: str) -> None:
        self.broken = reason
        self._parts.clear()

    def _with_whole_characters(self, chunk: str) -> str:
        """The chunk with its halves of characters joined; one at its end waits, one that is alone becomes U+FFFD."""
        if not self._half and _SURROGATE.search(chunk) is None:
            return chunk
        chunk, self._half = self._half + chunk, ""
        if chunk and "\ud800" <= chunk[-1] < "\udc00":
            chunk, self._half = chunk[:-1], chunk[-1]
        return chunk.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _from_json(data: bytes, partial_mode: Any = False) -> dict[str, Any]:
    try:
        import jiter
    except ImportError:
        text = "reading arguments as they are written needs a library: pip install 'mcpd-server[apps]'"
        raise ConfigurationError(text) from None
    found: dict[str, Any] = jiter.from_json(data, allow_inf_nan=False, partial_mode=partial_mode)
    return found


def _sendable(text: str) -> bytes:
    """The text with U+FFFD in the place of each escape that is half a character."""
    if "\\ud" in text or "\\uD" in text:
        text = _ESCAPE.sub(lambda found: r"\ufffd" if found[1] else found[0], text)
    return text.encode()
