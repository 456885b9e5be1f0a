"""What tests of the preview share: the browser."""

from __future__ import annotations

from support.browser import chromium

__all__ = ["chromium"]
