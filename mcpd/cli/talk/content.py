"""Shows results: text on stdout, images on terminals that can show them, and other data in files.

Without `--output`, files are saved in the current folder. Existing files are not overwritten, and a server cannot
choose the folder.
"""

from __future__ import annotations

import mimetypes
import os
import re
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.json import decode, encode, format

from mcpd.cli.talk.terminal import Terminal
from mcpd.errors import ConfigurationError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import printable
from mcpd.protocol.types.features import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)
_LONGEST_NAME = 60
_LONG = 40
_LONGEST_ENDING = 8
_MOST_FILES = 1000
_MOST_PICTURE_BYTES = 4 * 1024 * 1024
_KITTY_CHUNK = 4096
_PNG = b"\x89PNG\r\n\x1a\n"
_ENDINGS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/svg+xml": ".svg",
    "audio/wav": ".wav",
    "audio/mpeg": ".mp3",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "application/octet-stream": ".bin",
}


class Saver:
    """Saves data in files. `output` is a folder, or a file name with a suffix; None for the current folder."""

    def __init__(self, terminal: Terminal, output: str | None, stem: str) -> None:
        self.output = output
        self._terminal = terminal
        self._stem = _UNSAFE.sub("-", stem).strip("-.")[:_LONGEST_NAME] or "result"
        is_file = output is not None and os.path.splitext(output)[1] != "" and not os.path.isdir(output)
        self._first = output if is_file else None
        self._folder = (os.path.dirname(output) if is_file else output) if output else ""

    def save(self, data: bytes, mime_type: str | None, uri: str = "") -> None:
        """Save one file and print its name. Raises ConfigurationError if it cannot be written."""
        mime = (mime_type or "application/octet-stream").partition(";")[0].strip().lower()
        try:
            if self._folder:
                os.makedirs(self._folder, exist_ok=True)
            path, self._first = self._first, None
            if path is not None:
                Path(path).write_bytes(data)
            else:
                path = self._write(data, mime, uri)
        except OSError as error:
            where = self.output or "the current folder"
            raise ConfigurationError(f"{where}: {error.strerror}; name another folder with --output DIR") from None
        self._terminal.note(f"mcpd: {printable(mime)}, {len(data)} bytes: saved as {path}")

    def _write(self, data: bytes, mime: str, uri: str) -> str:
        base, ending = os.path.splitext(_UNSAFE.sub("-", uri.partition("?")[0].rstrip("/").rpartition("/")[2]))
        stem = base.strip("-.")[:_LONGEST_NAME] or self._stem
        if not 1 < len(ending) < _LONGEST_ENDING:
            guess = mimetypes.guess_extension(mime) or (".txt" if mime.startswith("text/") else ".bin")
            ending = _ENDINGS.get(mime, guess)
        for number in range(1, _MOST_FILES):
            path = os.path.join(self._folder or "", f"{stem}{'' if number == 1 else f'-{number}'}{ending}")
            try:
                with open(path, "xb") as file:
                    file.write(data)
            except FileExistsError:
                continue
            return path
        raise FileExistsError(0, f"there are already {_MOST_FILES} files named {stem}")


def show_blocks(terminal: Terminal, blocks: Sequence[Any], saver: Saver) -> None:
    """Show content blocks in order. A single block of data is written to a pipe unchanged."""
    found = [_as_bytes(block) for block in blocks]
    if len(found) == 1 and found[0] is not None and not terminal.out_is_terminal and saver.output is None:
        terminal.out_bytes(found[0][0])
        return
    for block, data in zip(blocks, found, strict=True):
        if data is not None:
            shown = picture(*data[:2]) if saver.output is None and terminal.out_is_terminal else None
            if shown is not None:
                terminal.out_bytes(shown)
            else:
                saver.save(*data)
        elif isinstance(block, TextContent):
            terminal.out(block.text)
        elif isinstance(block, EmbeddedResource):
            terminal.out(str(_member(block.resource, "text") or ""))
        elif isinstance(block, ResourceLink):
            _show_link(terminal, block)


def _show_link(terminal: Terminal, link: ResourceLink) -> None:
    size = f"{link.size} bytes" if link.size is not None else None
    facts = [printable(fact) for fact in (link.mime_type, size) if fact]
    about = f"  ({', '.join(facts)})" if facts else ""
    text = f"  {printable(link.description)}" if link.description else ""
    uri = printable(link.uri, 2000)
    terminal.out_safe(f"{terminal.styled(uri, 'cyan')}  {printable(link.title or link.name)}{about}{text}")


def _as_bytes(block: Any) -> tuple[bytes, str | None, str] | None:
    """The data of a block, its MIME type and its URI; None if the block has no data."""
    if isinstance(block, (ImageContent, AudioContent)):
        return block.data, block.mime_type, ""
    if isinstance(block, EmbeddedResource) and _member(block.resource, "blob") is not None:
        blob, mime = _member(block.resource, "blob"), _member(block.resource, "mimeType")
        data = blob if isinstance(blob, bytes) else _from_base64(blob)
        return data, mime if isinstance(mime, str) else None, str(_member(block.resource, "uri") or "")
    return None


def _member(resource: Any, name: str) -> Any:
    """A member of a resource's content, which is a struct, or a dict inside a message."""
    if isinstance(resource, dict):
        return resource.get(name)
    return getattr(resource, {"mimeType": "mime_type"}.get(name, name), None)


def _from_base64(text: Any) -> bytes:
    try:
        return decode(encode(text), type=bytes)
    except MALFORMED:
        return b""


def structured_text(structured: Any, blocks: Sequence[Any]) -> str | None:
    """Structured content as indented JSON; None if the text blocks contain the same, or without structured content."""
    if structured is UNSET:
        return None
    inner = structured["result"] if isinstance(structured, dict) and structured.keys() == {"result"} else structured
    for block in blocks:
        if isinstance(block, TextContent) and (block.text == inner or _read(block.text) in (structured, inner)):
            return None
    texts = [block.text for block in blocks if isinstance(block, TextContent)]
    if len(texts) > 1 and isinstance(inner, list) and [_read(text) for text in texts] == inner:
        return None  # each item of a list is a text block
    long = [text for text in _texts_in(structured) if "\n" in text or (len(text) > _LONG and " " in text)]
    if long and all(any(text in each for each in texts) for text in long):
        return None  # the text blocks contain all long texts, for example a whole page
    return format(encode(structured), indent=2).decode()


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(each)


def _read(text: str) -> Any:
    try:
        return decode(text.encode())
    except (*MALFORMED, UnicodeEncodeError):
        return text


# -------------------------------------------------------------------------------------- images


def picture(data: bytes, mime_type: str | None, environment: Mapping[str, str] = os.environ) -> bytes | None:
    """The bytes that show an image on this terminal: kitty's protocol for PNG, iTerm2's for all types; otherwise None.

    The terminal receives the image's own bytes as base64 only.
    https://sw.kovidgoyal.net/kitty/graphics-protocol, https://iterm2.com/documentation-images.html
    """
    if not (mime_type or "").startswith("image/") or len(data) > _MOST_PICTURE_BYTES:
        return None
    if environment.get("TMUX") or environment.get("TERM", "").startswith(("screen", "dumb")):
        return None  # terminal multiplexers do not pass images on

    program = environment.get("TERM_PROGRAM", "")
    if program in ("iTerm.app", "WezTerm", "mintty") or environment.get("LC_TERMINAL") == "iTerm2":
        return b"\x1b]1337;File=inline=1;size=%d:%s\x07\n" % (len(data), b64encode(data))
    has_kitty = environment.get("KITTY_WINDOW_ID") or "kitty" in environment.get("TERM", "") or program == "ghostty"
    return _kitty(data) if has_kitty and data.startswith(_PNG) else None


def _kitty(data: bytes) -> bytes:
    coded = b64encode(data)
    pieces = [coded[at : at + _KITTY_CHUNK] for at in range(0, len(coded), _KITTY_CHUNK)]
    shown = b""
    for number, piece in enumerate(pieces):
        first = b"f=100,a=T," if number == 0 else b""
        shown += b"\x1b_G%sm=%d;%s\x1b\\" % (first, number < len(pieces) - 1, piece)
    return shown + b"\n"
