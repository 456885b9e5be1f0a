"""The head of a document, between lines of `---`, as its author's other tools read it.

It is written for them, in all of YAML: keys with texts, numbers, lists and tables by indentation are taken, the rest is
passed over. Nothing that stands there is an error.
"""

from __future__ import annotations

import re
import tomllib

__all__ = ["number_in", "split_head", "text_in"]

_MOST_CHARACTERS = 64 * 1024
_END = re.compile(r"\n(---|\.\.\.|\+\+\+)[ \t]*+(?=\n|\Z)")
_PAIR = re.compile(r"""("[^"]*"|'[^']*'|[\w$@./][^:#\n]*?)[ \t]*:(?:[ \t]+(.*))?$""")
_NUMBER = re.compile(r"[-+]?\d{1,15}(\.\d{1,15})?$")
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None, "~": None, "": None}


def split_head(text: str) -> tuple[dict[str, object], str]:
    """What the head says, and the text behind it; without a head nothing, and the whole text."""
    fence = text[:3]
    if fence not in ("---", "+++") or text[3:].split("\n", 1)[0].strip():
        return {}, text
    for end in _END.finditer(text, 3, _MOST_CHARACTERS):
        if end[1] == fence or (end[1] == "..." and fence == "---"):
            head, body = text[4 : end.start()], text[end.end() + 1 :]
            return (_toml(head) if fence == "+++" else _yaml(head)), body
    return {}, text


def text_in(front: dict[str, object], *names: str) -> str:
    """The first of these keys that has a text, on one line; empty if none has."""
    for name in names:
        value = front.get(name)
        if isinstance(value, str) and value.strip():
            return " ".join(value.split())
    return ""


def number_in(front: dict[str, object], *names: str) -> int | None:
    """The first of these keys that has a number."""
    for name in names:
        value = front.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1_000_000:
            return int(value)
    return None


def _toml(head: str) -> dict[str, object]:
    try:
        return tomllib.loads(head)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _yaml(head: str) -> dict[str, object]:
    root: dict[str, object] = {}
    tables: list[tuple[int, dict[str, object]]] = [(-1, root)]
    last: tuple[dict[str, object], str] | None = None  # the key that lines of a list or a long text belong to
    block = -1  # the indentation of the key whose text goes on over lines

    for line in head.split("\n"):
        text = line.strip()
        indent = len(line) - len(line.lstrip(" "))
        if block >= 0 and last is not None:
            if not text or indent > block:
                table, key = last
                table[key] = f"{table[key]}\n{text}".lstrip("\n")
                continue
            block = -1
        if not text or text[0] == "#":
            continue
        if text[0] == "-" and (len(text) == 1 or text[1] == " "):
            _add_item(last, text[1:].strip())
            continue

        found = _PAIR.match(text)
        if found is None:
            continue
        while tables[-1][0] >= indent:
            tables.pop()
        table = tables[-1][1]
        key, rest = found[1].strip("\"'"), (found[2] or "").strip()
        last = table, key
        if rest[:1] in ("|", ">") and rest[1:] in ("", "-", "+"):
            table[key], block = "", indent
        elif rest and rest[0] != "#":
            table[key] = _value(rest)
        else:
            below: dict[str, object] = {}
            table[key] = below
            tables.append((indent, below))
    return root


def _add_item(last: tuple[dict[str, object], str] | None, text: str) -> None:
    if last is None:
        return
    table, key = last
    value = table[key]
    if isinstance(value, list):
        value.append(_value(text))
    elif not value:
        table[key] = [_value(text)]


def _value(text: str) -> object:
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        if text[0] == '"' and "\\" in text[:end]:
            return text.strip().strip('"').replace('\\"', '"')
        return text[1:end].strip() if end > 0 and text[end + 1 : end + 2] != "'" else text.strip("'\"")
    if text[:1] == "[":
        inner = text[1:].partition("]")[0]
        return [_value(part.strip()) for part in inner.split(",") if part.strip()]
    plain = text.split(" #", 1)[0].strip()
    if plain.lower() in _WORDS:
        return _WORDS[plain.lower()]
    if _NUMBER.match(plain):
        return float(plain) if "." in plain else int(plain)
    return plain
