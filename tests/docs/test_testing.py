"""docs/testing.md: the report about a changed interface reads as the page shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import REPOSITORY
from support.documentation import blocks
from support.our_plugin import OUR_PLUGIN

SERVER = """
from mcpd import Server

server = Server("garden")

@server.tool
def plant(bed: str = "north") -> str:
    "Plant something."
    return bed

def test_interface(mcpd_lock):
    mcpd_lock(server)
"""


def test_a_changed_interface_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "test_server.py"
    path.write_text(SERVER, encoding="utf-8")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *OUR_PLUGIN, "test_server.py"]
    subprocess.run([*run, "--mcpd-write"], cwd=tmp_path, capture_output=True, timeout=100, check=True)
    path.write_text(SERVER.replace(' = "north"', ""), encoding="utf-8")
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    (shown,) = [text for language, text in blocks(REPOSITORY / "docs" / "testing.md") if language == "text"]
    assert done.returncode == 1
    for line in shown.splitlines()[:2]:
        assert line in done.stdout
