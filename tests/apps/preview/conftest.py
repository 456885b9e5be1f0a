"""What tests of the preview share: the browser, and pages of others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.browser import chromium
from support.pages import Pages

__all__ = ["chromium"]


@pytest.fixture
def pages() -> Iterator[Pages]:
    """Pages on loopback, for this test."""
    served = Pages()
    yield served
    served.close()
