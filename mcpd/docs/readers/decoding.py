"""From bytes to text: UTF-8, UTF-16 with its mark, else Latin-1; what is binary is refused."""

from __future__ import annotations

import codecs
import re

from mcpd.docs.page import UnreadablePage

_CONTROLS = bytes([*range(9), *range(14, 27), *range(28, 32), 127])
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MOST_CONTROLS = 1 / 200  # of its characters: a terminal's recording has some, a program has more


def decoded(data: bytes) -> str:
    """The text that bytes are, with `\\n` between lines. Raises UnreadablePage for what is no text."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = data.decode("utf-16", "replace")
    elif b"\0" in data:
        raise UnreadablePage("is binary under the name of a text")
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = data.decode("latin-1")

    if len(data.translate(None, _CONTROLS)) < len(data):  # the fastest way to see that there are none
        text, found = _CONTROL.subn(" ", text)
        if found > 3 + len(text) * _MOST_CONTROLS:
            raise UnreadablePage("is binary under the name of a text")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text
