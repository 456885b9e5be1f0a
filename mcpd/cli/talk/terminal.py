"""Stdout, stderr and stdin of a command: results, notes, colours, a bar that is replaced, lines that are typed.

What a server sends may command a terminal: on one, everything that does not print is shown by its code. Into a pipe or
a file results go as they are.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import IO, Any

from mcpd.protocol.printable import printable, printable_lines

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_STDIN = 0
_BAR_SECONDS = 0.1
_LINE_SECONDS = 1.0
_BAR_CELLS = 24


def as_json_text(text: str) -> str:
    """JSON in which everything that does not print is written as `\\u009b`: the same value, safe to show."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


class Terminal:
    """The three streams of this process. `out` is for results, `note` for everything else."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._out: IO[Any] = _writable(sys.stdout)
        self._err: IO[Any] = _writable(sys.stderr)
        self.out_is_terminal = self._out.isatty()
        self.err_is_terminal = self._err.isatty()
        self.can_ask = self.err_is_terminal and sys.stdin is not None and sys.stdin.isatty()
        """Whether there is somebody to ask."""

        is_plain = bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb"
        self._colours = (self.out_is_terminal and not is_plain, self.err_is_terminal and not is_plain)
        self._bar = ""
        self._drawn_at: float | None = None
        self._typed = b""
        self._asking = asyncio.Lock()

    @property
    def width(self) -> int:
        """How many columns there are; 0 where stdout is no terminal."""
        if not self.out_is_terminal:
            return 0
        from shutil import get_terminal_size

        return get_terminal_size().columns

    # ----------------------------------------------------------------------------------- writing

    def out(self, text: str) -> None:
        """A piece of the result, and a line end if it has none. Of others' text: as it is, but on a terminal safe."""
        shown = printable_lines(text) if self.out_is_terminal else text
        self.out_safe(shown)

    def out_safe(self, text: str) -> None:
        """A piece of the result that is known to be safe, with colours of ours perhaps."""
        self.end_bar()
        self._out.write(text if text.endswith("\n") else f"{text}\n")
        self._out.flush()

    def out_json(self, text: str) -> None:
        """JSON, on one line."""
        self.out_safe(as_json_text(text) if self.out_is_terminal else text)

    def out_bytes(self, data: bytes) -> None:
        """Bytes as they are; never to a terminal, unless they are ours."""
        self.end_bar()
        self._out.flush()
        buffer: IO[bytes] = getattr(self._out, "buffer")  # noqa: B009 - of text streams, not of all
        buffer.write(data)
        buffer.flush()

    def note(self, text: str, style: str = "") -> None:
        """A line on stderr, for people. Line ends of others' text are to be escaped before."""
        bar = self._bar
        self.end_bar()
        self._write_err(f"{self.styled_note(printable_lines(text), style)}\n")
        self._bar = bar
        self._draw()

    def styled(self, text: str, *styles: str) -> str:
        """A text in colours, for stdout, if that shows any."""
        return _styled(text, styles) if self._colours[0] else text

    def styled_note(self, text: str, *styles: str) -> str:
        """The same for stderr."""
        return _styled(text, styles) if self._colours[1] else text

    def _write_err(self, text: str) -> None:
        try:
            self._err.write(text)
            self._err.flush()
        except OSError:
            pass  # nobody reads it

    # ---------------------------------------------------------------------------------- progress

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Show how far a call is, on a line that is replaced; where stderr is not a terminal, on lines of its own."""
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
        """Take the bar away."""
        if self._bar:
            self._bar = ""
            self._write_err("\r\x1b[K")

    def _draw(self) -> None:
        if self._bar:
            from shutil import get_terminal_size

            self._write_err(f"\r\x1b[K{self._bar[: get_terminal_size().columns - 1]}")

    # ------------------------------------------------------------------------------------ asking

    async def ask(self, prompt: str) -> str | None:
        """A line that the user types, without its end; None for the end of input (Ctrl-D)."""
        self.end_bar()
        self._write_err(prompt)
        line = await self._line()
        if line is None:
            self._write_err("\n")
            return None
        return line.decode(errors="replace").strip()

    @property
    def asking(self) -> asyncio.Lock:
        """Held by whoever asks: one question at a time."""
        return self._asking

    async def _line(self) -> bytes | None:
        # Not in a thread: one that waits for a line cannot be stopped, and the process would wait for it.
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
        return b""  # the terminal is gone
    finally:
        loop.remove_reader(_STDIN)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _styled(text: str, styles: tuple[str, ...]) -> str:
    codes = ";".join(_STYLES[style] for style in styles if style)
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text


def _writable(stream: Any) -> IO[Any]:
    """The stream; one that was closed before we started takes everything."""
    if stream is None:
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    found: IO[Any] = stream
    return found
