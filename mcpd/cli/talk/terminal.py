"""The terminal of a command: results on stdout, notes and a progress bar on stderr, typed lines from stdin.

Text from a server may contain control sequences. A terminal shows these as escaped codes; a pipe or a file receives
results unchanged. Images are shown on terminals that support that; other data is saved in files. Without `--output`,
files are saved in the current folder. Existing files are not overwritten, and a server cannot choose the folder.
"""

from __future__ import annotations

import asyncio
import json
import mimetypes
import os
import re
import sys
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, to_builtins
from msgspec.json import decode, encode, format

from mcpd.errors import ConfigurationError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import printable, printable_lines
from mcpd.protocol.types.features import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_STDIN = 0
_BAR_SECONDS = 0.1
_LINE_SECONDS = 1.0
# Progress below this is that of heartbeats.
_LEAST = 1e-6
_BAR_CELLS = 24


def json_text(value: Any) -> str:
    """A value as indented JSON that is safe to print."""
    return escape_json(format(encode(value), indent=2).decode())


def escape_json(text: str) -> str:
    """JSON with escapes such as `\\u009b` instead of unprintable characters: the same value, safe to print."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def can_print(text: str) -> bool:
    """Whether the encoding of stdout has these characters."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def arrow() -> str:
    return "→" if can_print("→") else "->"


def first_line(text: str | None) -> str:
    """The first line of a description; "" without a description."""
    return (text or "").strip().partition("\n")[0].strip()


def counted(number: int, noun: str) -> str:
    """A number and its noun: `1 tool`, `2 tools`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


class Terminal:
    """The three streams of this process. `out` is for results, `note` for all other lines."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._out = _writable(sys.stdout)
        self._err = _writable(sys.stderr)
        self.out_is_terminal = self._out.isatty()
        self.err_is_terminal = self._err.isatty()
        # Whether the user can be asked: stdin and stderr are terminals.
        self.can_ask = self.err_is_terminal and sys.stdin is not None and sys.stdin.isatty()

        is_plain = bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb"
        self._colours = (self.out_is_terminal and not is_plain, self.err_is_terminal and not is_plain)
        self._bar = ""
        self._drawn_at: float | None = None
        self._typed = b""
        # The lock to hold while asking, so that there is one question at a time.
        self.asking = asyncio.Lock()

    @property
    def width(self) -> int:
        """The number of columns; 0 if stdout is not a terminal."""
        return get_terminal_size().columns if self.out_is_terminal else 0

    def out(self, text: str) -> None:
        """Print part of the result, with a line end if it has none. On a terminal, escape unprintable characters."""
        self.out_safe(printable_lines(text) if self.out_is_terminal else text)

    def out_safe(self, text: str) -> None:
        """Print part of the result that is known to be safe; it may contain our own colours."""
        self.end_bar()
        self._out.write(text if text.endswith("\n") else f"{text}\n")
        self._out.flush()

    def out_json(self, text: str) -> None:
        self.out_safe(escape_json(text) if self.out_is_terminal else text)

    def print_json(self, value: Any) -> None:
        """Print raw JSON, or any value as JSON, on one line."""
        data = bytes(value) if isinstance(value, Raw) else encode(to_builtins(value))
        self.out_json(format(data, indent=-1).decode())

    def out_bytes(self, data: bytes) -> None:
        """Write bytes unchanged. A terminal must only receive bytes that we made."""
        self.end_bar()
        self._out.flush()
        self._out.buffer.write(data)
        self._out.buffer.flush()

    def note(self, text: str, style: str = "") -> None:
        """Print a line on stderr, for people. The caller escapes line ends in text from a server."""
        bar = self._bar
        self.end_bar()
        self._write_err(f"{self.styled_note(printable_lines(text), style)}\n")
        self._bar = bar
        self._draw()

    def styled(self, text: str, *styles: str) -> str:
        """A text in colours, if stdout shows colours."""
        return _styled(text, styles) if self._colours[0] else text

    def styled_note(self, text: str, *styles: str) -> str:
        """A text in colours, if stderr shows colours."""
        return _styled(text, styles) if self._colours[1] else text

    def _write_err(self, text: str) -> None:
        with suppress(OSError):  # stderr is closed
            self._err.write(text)
            self._err.flush()

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Show the progress of a call: on a terminal as a bar, otherwise as a line now and then."""
        is_last = total is not None and done >= total
        # A heartbeat, and the status of a task, have a text and no number that means something.
        number = "" if message and total is None and abs(done) < _LEAST else f"{done:g}"
        now = asyncio.get_running_loop().time()
        if not self.err_is_terminal:
            if is_last or self._drawn_at is None or now - self._drawn_at >= _LINE_SECONDS:
                self._drawn_at = now
                of = f" of {total:g}" if total is not None else ""
                said = printable(message, 200) if message else ""
                self.note(f"mcpd: {': '.join(filter(None, (number + of, said)))}")
            return
        said = f" {printable(message, 60)}" if message else ""
        if total is not None and total > 0:
            part = min(max(done / total, 0.0), 1.0)
            full = round(part * _BAR_CELLS)
            self._bar = f"[{'#' * full}{'-' * (_BAR_CELLS - full)}] {part:4.0%}{said}"
        else:
            self._bar = f"[{number}]{said}" if number else said.lstrip()

        if is_last or self._drawn_at is None or now - self._drawn_at >= _BAR_SECONDS:
            self._drawn_at = now
            self._draw()

    def end_bar(self) -> None:
        if self._bar:
            self._bar = ""
            self._write_err("\r\x1b[K")

    def _draw(self) -> None:
        if self._bar:
            self._write_err(f"\r\x1b[K{self._bar[: get_terminal_size().columns - 1]}")

    async def ask(self, prompt: str) -> str | None:
        """Read a line from the user, without its line end; None at the end of input (Ctrl-D)."""
        self.end_bar()
        self._write_err(prompt)
        line = await self._line()
        if line is None:
            self._write_err("\n")
            return None
        return line.decode(errors="replace").strip()

    async def _line(self) -> bytes | None:
        # No thread reads stdin: a thread that waits for a line cannot be stopped, and would keep the process alive.
        while b"\n" not in self._typed:
            data = await _read_when_ready()
            if not data:
                rest, self._typed = self._typed, b""
                return rest or None
            self._typed += data
        line, _, self._typed = self._typed.partition(b"\n")
        return line


async def _read_when_ready() -> bytes:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(_STDIN, _settle, ready)
    try:
        await ready
        return os.read(_STDIN, 65536)
    except OSError:
        return b""  # the terminal was closed
    finally:
        loop.remove_reader(_STDIN)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _styled(text: str, styles: tuple[str, ...]) -> str:
    codes = ";".join(_STYLES[style] for style in styles if style)
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text


def _writable(stream: Any) -> Any:
    # stdout or stderr may have been closed before the process started.
    if stream is None:
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return stream


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
    if isinstance(block, (ImageContent, AudioContent)):
        return block.data, block.mime_type, ""
    if isinstance(block, EmbeddedResource) and _member(block.resource, "blob") is not None:
        blob, mime = _member(block.resource, "blob"), _member(block.resource, "mimeType")
        data = blob if isinstance(blob, bytes) else _from_base64(blob)
        return data, mime if isinstance(mime, str) else None, str(_member(block.resource, "uri") or "")
    return None


def _member(resource: Any, name: str) -> Any:
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
