"""`libraries`: in a test that takes it, other libraries' modules are those of `mcpd.compat`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from mcpd.compat import install, uninstall
from mcpd.compat.install import LIBRARIES


def forget() -> None:
    """Nothing was imported."""
    for name in list(sys.modules):
        if name.partition(".")[0] in LIBRARIES:
            del sys.modules[name]


@pytest.fixture
def libraries() -> Iterator[None]:
    install()
    yield
    uninstall()
    forget()
