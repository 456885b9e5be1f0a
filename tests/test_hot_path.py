"""How long the path of a call is: an echo over stdio, counted in functions, files and frames of mcpd.

What may be registered beside a tool (lifespan, middleware, observers) makes it no longer where nothing is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from support.wires import LEGACY, MODERN, stdio_wire

import mcpd
from mcpd import Server

PACKAGE = str(Path(mcpd.__file__).parent) + os.sep

# What issue 11 allows.
MOST_FUNCTIONS = 36
MOST_FILES = 14
MOST_FRAMES = 6


class CallPath:
    """The functions of mcpd that run, each once, and how deep a tool is in them."""

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()
        self.frames = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.functions.add(frame.f_code)

    @property
    def files(self) -> set[str]:
        return {code.co_filename for code in self.functions}

    def note_depth(self) -> None:
        """Called in the tool."""
        frame: FrameType | None = sys._getframe(1)
        self.frames = 0
        while frame is not None:
            self.frames += frame.f_code.co_filename.startswith(PACKAGE)
            frame = frame.f_back


async def path_of_an_echo(server: Server, path: CallPath, version: str) -> CallPath:
    @server.tool
    async def echo(text: str) -> str:
        path.note_depth()
        return text

    async with stdio_wire(server, version) as wire:
        for _ in range(2):  # the first calls make what is kept
            await wire.text("echo", text="a")
        sys.setprofile(path)
        try:
            await wire.text("echo", text="a")
        finally:
            sys.setprofile(None)
    return path


async def test_an_echo_over_stdio() -> None:
    for version in (LEGACY[-1], MODERN):
        path = await path_of_an_echo(Server("path"), CallPath(), version)
        named = sorted(f"{Path(code.co_filename).relative_to(PACKAGE)}:{code.co_qualname}" for code in path.functions)
        print(version, len(named), len(path.files), path.frames, *named, sep="\n  ")
        assert len(path.functions) <= MOST_FUNCTIONS, named
        assert len(path.files) <= MOST_FILES, sorted(path.files)
        assert path.frames <= MOST_FRAMES
