"""The head of a Markdown file, between two lines of `---`: the part of YAML that people write there.

Keys with texts, numbers, true and false; tables by indentation; lists with `- `; lists and tables in brackets on one
line; texts in quotes, and texts over several lines, plain or behind `|` or `>`. All else is a mistake, named with its
line. What it reads it reads as YAML 1.2 does. Between lines of `+++` it is TOML.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["FrontMatterError", "split"]

# Compiled by `re` when they are first needed.
_KEY = r"""("[^"]*"|'[^']*'|[^\s:#'"\[\]{}&*!|>%@`,-][^:#]*?|-[^\s:#][^:#]*?)\s*:(?:\s+(.*))?$"""
_INTEGER = r"[-+]?(?:0|[1-9][0-9]*)\Z|0x[0-9a-fA-F]+\Z|0o[0-7]+\Z"
_FLOAT = r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"
_FLOW_KEY = r"""("[^"]*"|'[^']*'|[^\s:#'"\[\]{},&*!|>%@`][^:,\[\]{}]*?)\s*:(?=[\s,}\]]|$)\s*"""
_ESCAPE = r"""\\(u[0-9A-Fa-f]{4}|.)"""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/", "0": "\0"}
_MOST_DEPTH = 20


class FrontMatterError(Exception):
    """The head of a file cannot be read; `line` counts from 1, in the file."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


def split(text: str) -> tuple[dict[str, Any], str, int]:
    """What the head says, the text behind it, and the line on which that begins. Raises FrontMatterError."""
    lines = text.split("\n")
    fence = lines[0].rstrip()
    if fence not in ("---", "+++"):
        return {}, text, 1
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == fence), None)
    if end is None:
        raise FrontMatterError(1, f"its head begins with {fence} and never ends; write {fence} behind it")
    head, body = lines[1:end], "\n".join(lines[end + 1 :])
    return (_toml(head) if fence == "+++" else _Reader(head).read()), body, end + 2


def _toml(lines: list[str]) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads("\n".join(lines))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = re.search(r"at line (\d+)", str(error))
        raise FrontMatterError(
            int(found[1]) + 1 if found else len(lines) + 1, f"its head is no TOML: {error}"
        ) from None


class _Reader:
    """Reads lines by their indentation; `_at` is the line that comes next."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = [line.rstrip() for line in lines]
        self._at = 0

    def read(self) -> dict[str, Any]:
        """The table that all of it is."""
        self._skip()
        if self._at == len(self._lines):
            return {}
        value = self._block(0, 0)
        self._skip()
        if self._at < len(self._lines):
            raise self._wrong("is not indented like what is above it")
        if not isinstance(value, dict):
            self._at = 0
            raise self._wrong("is no key with a value, as in title: Plan a bed")
        return value

    def _wrong(self, text: str) -> FrontMatterError:
        shown = self._lines[self._at].strip() if self._at < len(self._lines) else ""
        return FrontMatterError(self._at + 2, f"{shown[:60]!r} {text}")

    def _skip(self) -> None:
        while self._at < len(self._lines):
            line = self._lines[self._at].strip()
            if line and not line.startswith("#"):
                return
            self._at += 1

    def _indent(self) -> int:
        line = self._lines[self._at]
        if "\t" in line[: len(line) - len(line.lstrip())]:
            raise self._wrong("begins with a tab; write spaces")
        return len(line) - len(line.lstrip(" "))

    def _block(self, least: int, depth: int) -> Any:
        """The table or list that begins on this line."""
        if depth > _MOST_DEPTH:
            raise self._wrong(f"is nested more than {_MOST_DEPTH} deep")
        indent = self._indent()
        is_list = self._is_item(self._lines[self._at].strip())
        found: Any = [] if is_list else {}
        while self._at < len(self._lines):
            here = self._indent()
            if here < least or here < indent:
                break
            text = self._lines[self._at].strip()
            if here > indent:
                raise self._wrong("is not indented like what is above it")
            if self._is_item(text) != is_list:
                if is_list and here == least:  # a list may stand as far left as its key; the next key ends it
                    break
                raise self._wrong("mixes a list with keys")
            if is_list:
                found.append(self._item(indent, text, depth))
            else:
                self._pair(found, indent, text, depth)
            self._skip()
        return found

    @staticmethod
    def _is_item(text: str) -> bool:
        return text == "-" or text.startswith("- ")

    def _item(self, indent: int, text: str, depth: int) -> Any:
        rest = text[1:].lstrip()
        if not rest:
            self._at += 1
            return self._nested(indent + 1, depth)
        if re.match(_KEY, rest) and rest[0] not in "\"'" or re.match(_KEY, rest) and rest.rstrip()[-1:] == ":":
            # A table whose first key stands behind the dash.
            inner = indent + len(text) - len(rest)
            self._lines[self._at] = " " * inner + rest
            return self._block(inner, depth + 1)
        return self._value(rest, indent)

    def _pair(self, table: dict[str, Any], indent: int, text: str, depth: int) -> None:
        found = re.match(_KEY, text)
        if found is None:
            raise self._wrong("is no key with a value, as in title: Plan a bed")
        key = found[1][1:-1] if found[1][0] in "\"'" else found[1]
        if key in table:
            raise self._wrong("has a key that is there already")
        rest = (found[2] or "").strip()
        if rest and not rest.startswith("#"):
            table[key] = self._value(rest, indent)
            return
        self._at += 1
        self._skip()
        if self._at < len(self._lines) and self._indent() == indent and self._is_item(self._lines[self._at].strip()):
            table[key] = self._block(indent, depth + 1)
        else:
            table[key] = self._nested(indent + 1, depth)

    def _nested(self, least: int, depth: int) -> Any:
        self._skip()
        if self._at == len(self._lines) or self._indent() < least:
            return None
        return self._block(least, depth + 1)

    # -- values ------------------------------------------------------------------------------

    def _value(self, text: str, indent: int) -> Any:
        """The value in the rest of a line, and the lines it goes on in; leaves the next line to be read."""
        block = text.partition(" #")[0].rstrip() if text[0] in "|>" else ""
        if block in ("|", ">", "|-", ">-", "|+", ">+"):
            self._at += 1
            return self._lines_of_text(indent, is_folded=block[0] == ">", end=block[1:])
        value, rest = self._flow(text, 0)
        is_commented = bool(rest.strip())
        if is_commented and not rest.strip().startswith("#"):
            raise self._wrong("has something behind its value; put a text with signs into quotes")
        self._at += 1
        if is_commented or text[0] in "\"'[{":
            return value
        more = self._more_lines(indent)
        return _folded([text.strip(), *more]) if more else value

    def _more_lines(self, indent: int) -> list[str]:
        """The lines that a plain text goes on in: those that stand further in than its key."""
        found: list[str] = []
        while self._at < len(self._lines):
            line = self._lines[self._at].strip()
            if line.startswith("#") or (line and self._indent() <= indent):
                break
            if ": " in line or line.endswith(":"):
                raise self._wrong("is not indented like what is above it; a text with a colon needs quotes")
            found.append(line.partition(" #")[0].rstrip())
            self._at += 1
            if " #" in line:
                break
        while found and not found[-1]:
            found.pop()
        return found

    def _flow(self, text: str, depth: int, ends: str = "") -> tuple[Any, str]:
        """The value that a text begins with, and what is behind it; inside brackets one of `ends` ends it."""
        if depth > _MOST_DEPTH:
            raise self._wrong(f"is nested more than {_MOST_DEPTH} deep")
        if text[0] in "\"'":
            return self._quoted(text)
        if text[0] == "[":
            return self._flow_list(text, depth)
        if text[0] == "{":
            return self._flow_table(text, depth)
        if text[0] in "&*!%@`|>":
            raise self._wrong("has a sign that means something else in YAML; put the text into quotes")

        end = len(text)
        for at, char in enumerate(text):
            if char in ends or (char == "#" and at and text[at - 1] in " \t"):
                end = at
                break
        plain = text[:end].strip()
        if not ends and ": " in plain:
            raise self._wrong("has a colon in its text; put the text into quotes")
        return _scalar(plain), text[end:]

    def _flow_list(self, text: str, depth: int) -> tuple[list[Any], str]:
        found: list[Any] = []
        rest = text[1:].lstrip()
        while not rest.startswith("]"):
            if not rest:
                raise self._wrong("has no ] at its end; write the list on one line, or with - on lines of its own")
            value, rest = self._flow(rest, depth + 1, ",]")
            found.append(value)
            rest = rest.lstrip()
            if rest.startswith(","):
                rest = rest[1:].lstrip()
            elif rest and not rest.startswith("]"):
                raise self._wrong("needs a comma between the items of its list")
        return found, rest[1:]

    def _flow_table(self, text: str, depth: int) -> tuple[dict[str, Any], str]:
        found: dict[str, Any] = {}
        rest = text[1:].lstrip()
        while not rest.startswith("}"):
            key = re.match(_FLOW_KEY, rest)
            if key is None:
                raise self._wrong("is no table in braces on one line, as in {version: 1, by: me}")
            name = key[1][1:-1] if key[1][0] in "\"'" else key[1]
            if name in found:
                raise self._wrong("has a key that is there already")
            rest = rest[key.end() :]
            found[name] = None
            if rest and rest[0] not in ",}":
                found[name], rest = self._flow(rest, depth + 1, ",}")
            rest = rest.lstrip()
            if rest.startswith(","):
                rest = rest[1:].lstrip()
            elif not rest.startswith("}"):
                raise self._wrong("has no } at its end; write the table on one line, or with a key on each line")
        return found, rest[1:]

    def _quoted(self, text: str) -> tuple[str, str]:
        quote = text[0]
        if quote == "'":
            found = re.match(r"'((?:[^']|'')*)'", text)
            if found:
                return found[1].replace("''", "'"), text[found.end() :]
        else:
            found = re.match(r'"((?:[^"\\]|\\.)*)"', text)
            if found:
                return re.sub(_ESCAPE, self._unescaped, found[1]), text[found.end() :]
        raise self._wrong("has a quote that does not end on its line")

    def _unescaped(self, found: re.Match[str]) -> str:
        name = found[1]
        if name[0] == "u" and len(name) == 5:
            return chr(int(name[1:], 16))
        if name not in _ESCAPES:
            raise self._wrong(f"has \\{name} in its text; write \\\\ for a backslash")
        return _ESCAPES[name]

    def _lines_of_text(self, indent: int, *, is_folded: bool, end: str) -> str:
        """The text behind `|` or `>`; its last line ends as `end` says, `-` without and `+` with all empty lines."""
        start = self._at
        while self._at < len(self._lines) and (not self._lines[self._at].strip() or self._indent() > indent):
            self._at += 1
        block = self._lines[start : self._at]
        inner = min((len(line) - len(line.lstrip(" ")) for line in block if line), default=0)
        lines = [line[inner:] for line in block]
        empty = 0
        while lines and not lines[-1]:
            lines.pop()
            empty += 1
        if not lines:
            return "\n" * empty if end == "+" else ""
        text = _folded(lines) if is_folded else "\n".join(lines)
        return text + {"-": "", "+": "\n" * (empty + 1)}.get(end, "\n")


def _folded(lines: list[str]) -> str:
    """Lines as one text: a space for the end of each, unless there are empty ones or such that stand further in."""
    text, empty = lines[0], 0
    for before, line in zip(lines, lines[1:], strict=False):
        if not line:
            empty += 1
            continue
        is_kept = line[:1] in " \t" or (before or text.rpartition("\n")[2])[:1] in (" ", "\t")
        text += "\n" * (empty + is_kept) if empty or is_kept else " "
        text += line
        empty = 0
    return text


def _scalar(text: str) -> Any:
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text in ("true", "True", "TRUE")
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text[0] in "+-.0123456789":
        if re.match(_INTEGER, text):
            return int(text, 0)
        if re.match(_FLOAT, text) and text not in (".", "+.", "-."):
            return float(text)
    return text
