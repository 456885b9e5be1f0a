"""Tool arguments while a model still writes them: unfinished JSON, closed so that it can be shown.

Theory of operation. A pushdown reader takes the text in chunks of any size and builds the value as it goes,
so no character is read twice. What is certain stands in the tree at once; a string or number that is still
open stands there with what is known of it; everything else waits: a key without a value, `tru`, half an
escape, the `e+` of a number. Nothing is made up: each string shown is a prefix of the real one, each number
is written with the first digits of the real one, each array lacks at most elements at its end, each object
at most its last members. Once the text is complete the tree equals `json.loads(text)`, but that a lone
surrogate becomes U+FFFD, since it could not be sent on.

Text that is no prefix of a JSON object, or is nested or sized beyond the limits, ends it: `broken` says why,
and from then on there is nothing to show. The reader never raises for what a model wrote.

Spec: MCP Apps 2026-01-26, `ui/notifications/tool-input-partial`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

__all__ = ["MAX_CHARS", "MAX_DEPTH", "PartialArguments"]

MAX_DEPTH: Final = 64
MAX_CHARS: Final = 4 * 1024 * 1024
_MAX_NUMBER: Final = 1024

_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_NUMBER_CHARS = re.compile(r"[-+.0-9eE]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNICODE = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: Final = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}

# An open string is joined anew on each chunk while it is short, and then each time it has grown by 1/256:
# that keeps the joining linear in the length of the text however small the chunks are.
_JOIN_ALWAYS: Final = 4096
_JOIN_GROWTH: Final = 256


class PartialArguments:
    """One tool call's arguments as they arrive. `feed` gives the same, growing dict each time."""

    __slots__ = (
        "_changed", "_count", "_escape", "_half", "_joined", "_keys", "_length", "_parts", "_placed", "_root", "_stack",
        "_step", "_surrogate", "_token", "_wanted", "broken",
    )  # fmt: skip

    def __init__(self) -> None:
        self.broken = ""
        self._root: dict[str, Any] | None = None
        self._stack: list[dict[str, Any] | list[Any]] = []
        self._keys: list[str] = []  # for each open object, the key whose value comes next
        self._step: Callable[[str, int], int] = self._start
        self._changed = False
        self._count = 0

        # The scalar being read.
        self._token = ""  # a number's or literal's characters
        self._wanted: tuple[str, Any] = ("", None)
        self._placed = False  # whether a first version of it stands in the tree

        self._parts: list[str] = []  # an open string's text
        self._length = 0
        self._joined = 0  # its length when it was last put into the tree
        self._escape = ""  # an unfinished escape, from its backslash on
        self._surrogate = 0  # an escaped high surrogate waiting for its other half
        self._half = ""  # one that ended a chunk as it stands, where a character was cut in two

    @property
    def complete(self) -> bool:
        """Whether the whole object has been read."""
        return self._step == self._end and not self.broken

    def feed(self, chunk: str) -> dict[str, Any] | None:
        """Read on; the arguments so far, or None if this chunk changed nothing that can be seen.

        The dict is live: encode or copy it before the next chunk.
        """
        chunk = self._with_whole_characters(chunk)
        self._count += len(chunk)
        if self._count > MAX_CHARS:
            self._break(f"more than {MAX_CHARS} characters")

        position, end = 0, len(chunk)
        while position < end and not self.broken:
            position = self._step(chunk, position)
        if self.broken:
            return None

        # Of a scalar that is still open, what there is of it can be shown already.
        self._show_open_scalar()
        if not self._changed:
            return None
        self._changed = False
        return self._root

    def _with_whole_characters(self, chunk: str) -> str:
        """The chunk with its halves of characters joined; one at its end waits, one that is alone becomes U+FFFD."""
        if not self._half and _SURROGATE.search(chunk) is None:
            return chunk
        chunk, self._half = self._half + chunk, ""
        if chunk and "\ud800" <= chunk[-1] < "\udc00":
            chunk, self._half = chunk[:-1], chunk[-1]
        return chunk.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    # ------------------------------------------------------------------ steps: (chunk, position) -> position

    def _start(self, chunk: str, position: int) -> int:
        position = _skip(chunk, position)
        if position < len(chunk):
            if chunk[position] != "{":
                return self._break("tool arguments are a JSON object")
            self._root = {}
            self._open(self._root)
        return position + 1

    def _end(self, chunk: str, position: int) -> int:
        position = _skip(chunk, position)
        if position < len(chunk):
            self._break("text after the end of the object")
        return position

    def _first_key(self, chunk: str, position: int) -> int:
        return self._key(chunk, position, may_end=True)

    def _next_key(self, chunk: str, position: int) -> int:
        return self._key(chunk, position, may_end=False)

    def _key(self, chunk: str, position: int, *, may_end: bool) -> int:
        position = _skip(chunk, position)
        if position == len(chunk):
            return position
        if chunk[position] == '"':
            self._open_string(self._in_key)
        elif chunk[position] == "}" and may_end:
            self._close()
        else:
            self._break("a key was expected")
        return position + 1

    def _colon(self, chunk: str, position: int) -> int:
        position = _skip(chunk, position)
        if position < len(chunk):
            if chunk[position] != ":":
                return self._break("a colon was expected")
            self._step = self._value
        return position + 1

    def _first_element(self, chunk: str, position: int) -> int:
        position = _skip(chunk, position)
        if position < len(chunk) and chunk[position] == "]":
            self._close()
            return position + 1
        return self._value(chunk, position)

    def _value(self, chunk: str, position: int) -> int:
        position = _skip(chunk, position)
        if position == len(chunk):
            return position

        char = chunk[position]
        self._placed = False
        if char == '"':
            self._open_string(self._in_string)
        elif char == "{":
            self._open_nested({})
        elif char == "[":
            self._open_nested([])
        elif char in _LITERALS:
            self._wanted, self._token, self._step = _LITERALS[char], char, self._in_literal
        elif char in "-0123456789":
            self._token, self._step = "", self._in_number
            return position
        else:
            return self._break("a value was expected")
        return position + 1

    def _comma(self, chunk: str, position: int) -> int:
        position = _skip(chunk, position)
        if position == len(chunk):
            return position
        char, in_object = chunk[position], isinstance(self._stack[-1], dict)
        if char == ",":
            self._step = self._next_key if in_object else self._value
        elif char == ("}" if in_object else "]"):
            self._close()
        else:
            return self._break("a comma or the end was expected")
        return position + 1

    def _in_literal(self, chunk: str, position: int) -> int:
        word, value = self._wanted
        rest = word[len(self._token) :]
        seen = chunk[position : position + len(rest)]
        if not rest.startswith(seen):
            return self._break("no JSON literal")
        self._token += seen
        if self._token == word:
            self._place(value)
            self._step = self._comma
        return position + len(seen)

    def _in_number(self, chunk: str, position: int) -> int:
        match = _NUMBER_CHARS.match(chunk, position)
        assert match is not None  # it may be empty, but it matches
        self._token += match[0]
        if len(self._token) > _MAX_NUMBER:
            return self._break("a number too long")

        if match.end() < len(chunk):  # something else follows: the number is over
            whole = _NUMBER.fullmatch(self._token)
            if whole is None:
                return self._break("no JSON number")
            self._place(_number(whole))
            self._step = self._comma
        return match.end()

    def _in_string(self, chunk: str, position: int) -> int:
        position, text = self._read_string(chunk, position)
        if text is not None:
            self._place(text)
            self._step = self._comma
        return position

    def _in_key(self, chunk: str, position: int) -> int:
        position, text = self._read_string(chunk, position)
        if text is not None:
            self._keys[-1] = text
            self._step = self._colon
        return position

    # ------------------------------------------------------------------------------------------- strings

    def _open_string(self, step: Callable[[str, int], int]) -> None:
        self._parts, self._length, self._joined = [], 0, -1
        self._step = step

    def _read_string(self, chunk: str, position: int) -> tuple[int, str | None]:
        """On to the end of the chunk, of the string (then with its text) or of one escape."""
        if self._escape:
            return self._read_escape(chunk, position), None

        match = _PLAIN.match(chunk, position)
        assert match is not None
        if match[0]:
            self._add(match[0])
        position = match.end()

        if position == len(chunk):
            return position, None
        if chunk[position] == '"':
            self._drop_surrogate()
            return position + 1, "".join(self._parts)
        if chunk[position] == "\\":
            self._escape = "\\"
            return position + 1, None
        return self._break("a control character in a string"), None

    def _read_escape(self, chunk: str, position: int) -> int:
        if len(self._escape) == 1:
            char = chunk[position]
            if char == "u":
                self._escape = "\\u"
            elif char in _ESCAPES:
                self._escape = ""
                self._add(_ESCAPES[char])
            else:
                return self._break("no JSON escape")
            return position + 1

        digits = chunk[position : position + 6 - len(self._escape)]
        self._escape += digits
        if len(self._escape) == 6:
            if not _UNICODE.fullmatch(self._escape, 2):
                return self._break("no JSON escape")
            code, self._escape = int(self._escape[2:], 16), ""
            self._add_code(code)
        return position + len(digits)

    def _add_code(self, code: int) -> None:
        """A UTF-16 code unit; a high surrogate waits for what follows it."""
        if 0xDC00 <= code < 0xE000 and self._surrogate:
            high, self._surrogate = self._surrogate, 0
            self._add(chr(0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00)))
        elif 0xD800 <= code < 0xDC00:
            self._drop_surrogate()
            self._surrogate = code
        else:
            self._add("\ufffd" if 0xDC00 <= code < 0xE000 else chr(code))

    def _drop_surrogate(self) -> None:
        if self._surrogate:
            self._surrogate = 0
            self._add("\ufffd")

    def _add(self, text: str) -> None:
        self._drop_surrogate()
        self._parts.append(text)
        self._length += len(text)

    # ---------------------------------------------------------------------------------------------- tree

    def _show_open_scalar(self) -> None:
        """At the end of a chunk: put into the tree what is known of an open string or number."""
        if self._step == self._in_number:
            match = _NUMBER.match(self._token)
            if match is not None:
                self._place(_number(match))
        elif self._step == self._in_string:
            grown = self._length - self._joined
            if grown and (self._length <= _JOIN_ALWAYS or grown * _JOIN_GROWTH >= self._length):
                text = "".join(self._parts)
                self._parts, self._joined = [text], self._length
                self._place(text)

    def _place(self, value: Any) -> None:
        """Set the value that is due in the innermost container, or replace its first version."""
        container = self._stack[-1]
        if isinstance(container, dict):
            if self._placed and container[self._keys[-1]] == value:
                return
            container[self._keys[-1]] = value
        elif self._placed:
            if container[-1] == value:
                return
            container[-1] = value
        else:
            container.append(value)
        self._placed = self._changed = True

    def _open_nested(self, container: dict[str, Any] | list[Any]) -> None:
        if len(self._stack) == MAX_DEPTH:
            self._break(f"nested deeper than {MAX_DEPTH}")
            return
        self._place(container)
        self._open(container)

    def _open(self, container: dict[str, Any] | list[Any]) -> None:
        self._stack.append(container)
        self._keys.append("")
        self._step = self._first_key if isinstance(container, dict) else self._first_element
        self._changed = True

    def _close(self) -> None:
        self._stack.pop()
        self._keys.pop()
        self._step = self._comma if self._stack else self._end

    def _break(self, reason: str) -> int:
        self.broken = self.broken or reason
        self._root, self._stack, self._keys, self._parts = None, [], [], []
        return 0


def _skip(chunk: str, position: int) -> int:
    match = _SPACE.match(chunk, position)
    assert match is not None
    return match.end()


def _number(match: re.Match[str]) -> int | float:
    """Like json.loads: an int unless it has a fraction or an exponent."""
    return float(match[0]) if match[1] or match[2] else int(match[0])
