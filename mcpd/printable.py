"""Escapes text from peers for logs, error messages and terminals.

What a peer sends may hold newlines, which forge lines of a log, escape sequences, which command a terminal, and marks
that turn the direction of text around. Every log line of ours that names something of a peer takes it from here;
tests/test_log_lines.py looks.
"""

from __future__ import annotations

MOST_CHARACTERS = 200
"""How much of one text is shown, unless more is asked for."""


def printable(value: object, most: int = MOST_CHARACTERS) -> str:
    """`str(value)` on one line, at most `most` characters of it; what does not print is written as `\\n` or `\\u202e`.

    Bytes are read as Latin-1. Never raises, whatever `value` does.
    """
    try:
        if isinstance(value, (bytes, bytearray)):
            text = bytes(value[: most + 1]).decode("latin-1")
            length = len(value)
        else:
            text = str(value)
            length = len(text)
    except Exception:
        return f"<{type(value).__name__}>"
    if length <= most and text.isprintable():
        return text
    # What Python calls printable leaves out controls, direction marks, lone surrogates and odd spaces.
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:most])
    return shown if length <= most else f"{shown}… ({length} characters)"


def printable_lines(text: str) -> str:
    """The whole text with its lines and tabs as they are; everything else that does not print is written as `\\x1b`."""
    if text.isprintable():
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(printable(part, len(part)) for part in line.split("\t")) for line in lines)
