"""The official tool takes a bundle: it validates, is unpacked, and what it then starts is the server.

Run by `make clients`. The packages that a bundle needs come from a folder, not from the network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY, Child

from mcpd import Client
from mcpd.client import CommandTarget

pytestmark = [pytest.mark.clients, pytest.mark.timeout(150)]

HERE = Path(__file__).resolve().parent
TOOLS = REPOSITORY / ".tools"
MCPB = HERE / "node_modules" / "@anthropic-ai" / "mcpb" / "dist" / "cli" / "cli.js"
UV = TOOLS / "uv" / "bin" / "uv"

SERVER = """
import os
from mcpd import Server
from beds import NAMES

server = Server("garden", version="1.2.0", title="The garden")

@server.tool
def water(bed: str) -> str:
    "Water a bed."
    return f"{bed} of {NAMES} with {os.environ['API_KEY']} at {os.environ['LEVEL']}"

@server.prompt
def ask(topic: str) -> str:
    "Ask about something."
    return f"Tell me of {topic}"
"""


def node(*words: object) -> subprocess.CompletedProcess[str]:
    if not MCPB.exists() or not UV.exists() or not (TOOLS / "wheels").is_dir():
        pytest.skip("needs the official tool for bundles, and uv: make clients installs both")
    return subprocess.run(
        [TOOLS / "bin" / "node", *map(str, words)], cwd=HERE, capture_output=True, text=True, timeout=60, check=False
    )


def wheels(folder: Path) -> Path:
    """A configuration of uv with all that a bundle needs, ourselves as we are among it."""
    own = [sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), "."]
    subprocess.run(own, cwd=REPOSITORY, check=True, capture_output=True, timeout=90)
    file = folder / "uv.toml"
    file.write_text(f"no-index = true\nfind-links = [{json.dumps(str(folder))}, {json.dumps(str(TOOLS / 'wheels'))}]\n")
    return file


async def test_a_bundle_in_the_hands_of_the_official_tool(child: Child, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    (tmp_path / "beds.py").write_text("NAMES = ['rose']\n", encoding="utf-8")
    words = ["server.py", "-o", "garden.mcpb", "--env", "API_KEY", "--env", "LEVEL=low", "--author", "Ada"]
    done = subprocess.run(
        child.mcpd("bundle", *words),
        env=child.env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    place = tmp_path / "un packed"
    unpacked = node(MCPB, "unpack", tmp_path / "garden.mcpb", place)
    assert unpacked.returncode == 0, unpacked.stdout + unpacked.stderr
    valid = node(MCPB, "validate", place)
    assert (valid.returncode, "validation passes" in valid.stdout) == (0, True), valid.stdout
    assert node(MCPB, "info", tmp_path / "garden.mcpb").returncode == 0
    # Packed by the tool from the same folder it has the same files: nothing of ours is of a kind that it leaves out.
    assert node(MCPB, "pack", place, tmp_path / "again.mcpb").returncode == 0

    # Without an answer to what it has to ask the host starts nothing.
    assert json.loads(node(HERE / "start.mjs", place, "{}").stdout) is None
    started: dict[str, Any] = json.loads(node(HERE / "start.mjs", place, '{"api_key": "k3y"}').stdout)
    assert started["env"] == {"API_KEY": "k3y", "LEVEL": "low"}
    env = started["env"] | {
        "UV_CONFIG_FILE": str(wheels(tmp_path)),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_PYTHON": sys._base_executable,  # type: ignore[attr-defined]
        "PATH": f"{UV.parent}{os.pathsep}{os.environ['PATH']}",
    }
    target = CommandTarget((str(UV), *started["args"]), env, "/")
    assert started["command"] == "uv"
    async with Client(target) as client:
        assert client.server_info is not None
        assert client.server_info.version == "1.2.0"
        result = await client.call_tool("water", {"bed": "one"})
        assert "one of ['rose'] with k3y at low" in repr(result)
    assert (place / ".venv").is_dir()
