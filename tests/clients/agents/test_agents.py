"""The examples in `examples/agents/`: agent libraries with our client's tools, each in its own environment.

Run by `make clients`. The model is a fake: it calls each tool once, and answers with what came.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import REPOSITORY, Child

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

HERE = Path(__file__).resolve().parent
EXAMPLES = REPOSITORY / "examples" / "agents"
LIBRARIES = ("langchain", "openai-agents", "pydantic-ai")
CALLS = [["add", {"a": 2, "b": 3}], ["water_bed", {"bed": "north"}], ["water_bed", {"bed": "south", "litres": 2.5}]]


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_agent_uses_our_tools(library: str, child: Child) -> None:
    python = REPOSITORY / ".tools" / "clients" / library / "bin" / "python"
    if not python.exists():
        pytest.skip(f"needs {library}: make clients installs it")
    server = child.mcpd("serve", "--stdio", str(HERE / "garden.py"))
    done = subprocess.run(
        [python, HERE / f"{library.replace('-', '_')}_run.py", json.dumps(CALLS), *server],
        env={**child.env, "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(EXAMPLES)))},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    added, watered, failed = json.loads(done.stdout)
    assert json.loads(added) == 5
    assert json.loads(watered.replace("'", '"')) == {"bed": "north", "litres": 1.0}
    assert "the south bed is under water" in failed


def test_each_example_is_run() -> None:
    assert {path.stem.removesuffix("_agent") for path in EXAMPLES.glob("*.py")} == {
        name.replace("-", "_") for name in LIBRARIES
    }
