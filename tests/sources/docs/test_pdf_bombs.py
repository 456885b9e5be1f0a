"""PDF files that would cost without end: read within bounds of time and memory, or told in one line."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mcpd.sources.docs.page import UnreadablePage
from mcpd.sources.docs.readers.reading import ReaderProcess, read_page

pytest.importorskip("pypdf")
SECONDS = 1.0


@pytest.mark.slow
def test_they_are_bounded() -> None:
    from support.pdf_bombs import BOMBS  # making them takes half a second

    process = ReaderProcess(SECONDS)
    said: dict[str, str] = {}
    peak = 0
    try:
        for name, data in BOMBS.items():
            assert len(data) < 2_000_000
            began = time.monotonic()
            try:
                found = read_page("bomb.pdf", data, process=process)
                said[name] = f"{len(found.text)} characters"
            except UnreadablePage as error:
                said[name] = str(error)
            assert time.monotonic() - began < 30, name
            child = process._process
            if child is not None and Path("/proc/self/status").exists():
                status = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii")
                peak = max(peak, int(status.partition("VmHWM:")[2].split()[0]))
    finally:
        process.close()
    assert all(text.isprintable() and len(text) < 200 for text in said.values())
    assert peak < 2_200_000, f"{peak} kB"
    assert len([text for text in said.values() if "characters" not in text]) >= len(said) // 2, said
