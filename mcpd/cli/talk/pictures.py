"""Images in a terminal that shows them: kitty's way for PNG, iTerm2's for every kind. Anything else says None.

https://sw.kovidgoyal.net/kitty/graphics-protocol, https://iterm2.com/documentation-images.html
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping

_PNG = b"\x89PNG\r\n\x1a\n"
_CHUNK = 4096
_MOST_BYTES = 4 * 1024 * 1024


def picture(data: bytes, mime_type: str | None, environment: Mapping[str, str] = os.environ) -> bytes | None:
    """What shows an image here; None where nothing does. Of the image's own bytes only base64 reaches the terminal."""
    if not (mime_type or "").startswith("image/") or len(data) > _MOST_BYTES:
        return None
    if environment.get("TMUX") or environment.get("TERM", "").startswith(("screen", "dumb")):
        return None  # what stands between would have to pass it on

    program = environment.get("TERM_PROGRAM", "")
    if program in ("iTerm.app", "WezTerm", "mintty") or environment.get("LC_TERMINAL") == "iTerm2":
        return b"\x1b]1337;File=inline=1;size=%d:%s\x07\n" % (len(data), b64encode(data))
    has_kitty = environment.get("KITTY_WINDOW_ID") or "kitty" in environment.get("TERM", "") or program == "ghostty"
    return _kitty(data) if has_kitty and data.startswith(_PNG) else None


def _kitty(data: bytes) -> bytes:
    coded = b64encode(data)
    pieces = [coded[at : at + _CHUNK] for at in range(0, len(coded), _CHUNK)]
    shown = b""
    for number, piece in enumerate(pieces):
        first = b"f=100,a=T," if number == 0 else b""
        shown += b"\x1b_G%sm=%d;%s\x1b\\" % (first, number < len(pieces) - 1, piece)
    return shown + b"\n"
