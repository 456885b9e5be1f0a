"""What tests of the host share: the official schema as a judge of every message."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.apps_schema import AppsSchema


@pytest.fixture(scope="session")
def schema(shared: Path) -> AppsSchema:
    """The schema of the official SDK."""
    return AppsSchema(shared)
