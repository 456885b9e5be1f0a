"""The terminal of a command: results on stdout, notes and a progress bar on stderr, typed lines from stdin.

Text from a server may contain control sequences. A terminal shows these as escaped codes; a pipe or a file receives
results unchanged.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from shutil import get_terminal_size
from typing import Any

from msgspec import Raw, to_builtins
from msgspec.json import encode, format

from mcpd.protocol.printable import printable, printable_lines

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_STDIN = 0
_BAR_SECONDS = 0.1
_LINE_SECONDS = 1.0
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
    """An arrow before an advice."""
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

    # ----------------------------------------------------------------------------------- writing

    def out(self, text: str) -> None:
        """Print part of the result, with a line end if it has none. On a terminal, escape unprintable characters."""
        shown = printable_lines(text) if self.out_is_terminal else text
        self.out_safe(shown)

    def out_safe(self, text: str) -> None:
        """Print part of the result that is known to be safe; it may contain our own colours."""
        self.end_bar()
        self._out.write(text if text.endswith("\n") else f"{text}\n")
        self._out.flush()

    def out_json(self, text: str) -> None:
        """Print JSON."""
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
        try:
            self._err.write(text)
            self._err.flush()
        except OSError:
            pass  # stderr is closed

    # ---------------------------------------------------------------------------------- progress

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Show the progress of a call: on a terminal as a bar, otherwise as a line now and then."""
        is_last = total is not None and done >= total
        now = asyncio.get_running_loop().time()
        if not self.err_is_terminal:
            if is_last or self._drawn_at is None or now - self._drawn_at >= _LINE_SECONDS:
                self._drawn_at = now
                of = f" of {total:g}" if total is not None else ""
                self.note(f"mcpd: {done:g}{of}{f': {printable(message, 200)}' if message else ''}")
            return
        said = f" {printable(message, 60)}" if message else ""
        if total is not None and total > 0:
            part = min(max(done / total, 0.0), 1.0)
            full = round(part * _BAR_CELLS)
            self._bar = f"[{'#' * full}{'-' * (_BAR_CELLS - full)}] {part:4.0%}{said}"
        else:
            self._bar = f"[{done:g}]{said}"

        if is_last or self._drawn_at is None or now - self._drawn_at >= _BAR_SECONDS:
            self._drawn_at = now
            self._draw()

    def end_bar(self) -> None:
        """Remove the progress bar."""
        if self._bar:
            self._bar = ""
            self._write_err("\r\x1b[K")

    def _draw(self) -> None:
        if self._bar:
            self._write_err(f"\r\x1b[K{self._bar[: get_terminal_size().columns - 1]}")

    # ------------------------------------------------------------------------------------ asking

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
    """The stream, or /dev/null if it was closed before we started."""
    if stream is None:
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return stream
