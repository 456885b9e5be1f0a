"""The server of `support/process_tools.py`, loaded as `mcpd serve` does."""

from __future__ import annotations

import pytest
from support.process_stage import TOOLS

from mcpd import Server
from mcpd.cli.target import load


@pytest.fixture(scope="module")
def processes() -> Server:
    """The server."""
    found = load(str(TOOLS))
    assert found is not None
    return found
