"""A minute of the long day of a service (`make soak-nodes`): everything that was sent adds up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from conftest import Child
from hostile.soak_nodes import soak
from support.drills import drill
from support.redis_server import NEEDS_REDIS
from support.service_stage import missing


@pytest.mark.nightly
@NEEDS_REDIS
@pytest.mark.skipif(bool(missing("nginx")), reason="nginx is not installed")
def test_what_was_sent_adds_up(child: Child, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SCALE-11 to SCALE-14, SCALE-22: with nodes killed and stopped, and Redis paused and cut off, each request is
    answered, or lost and sent again; no call is answered twice, or with anything but what it asked for."""
    with drill(child, tmp_path) as (served, journal):
        wrong = asyncio.run(soak(served, journal, minutes=0.3, seed="in CI"))
    assert not wrong, "\n".join([*wrong[:20], capsys.readouterr().out])
