"""mcpd runs with the oldest versions of its dependencies that are allowed; all other tests have the newest."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib

import pytest
from conftest import REPOSITORY

PYTHON = REPOSITORY / ".tools" / "oldest" / "bin" / "python"
CONSTRAINTS = REPOSITORY / "tests" / "constraints-oldest.txt"


def test_the_oldest_are_those_of_pyproject() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [line for extra, needed in extras.items() if extra not in {"all", "test"} for line in needed]
    wanted = {
        found[1]: found[2]
        for line in [*project["dependencies"], *lines]
        if (found := re.match(r"([\w-]+)>=([\d.]+)", line))
    }
    oldest = dict(re.findall(r"^([\w-]+)==(\S+)$", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(oldest) == set(wanted)
    for name, version in wanted.items():
        assert f"{oldest[name]}.".startswith(f"{version}."), name


@pytest.mark.nightly
@pytest.mark.timeout(1860)
def test_the_oldest_do() -> None:
    if not PYTHON.exists():
        pytest.skip("needs an environment with the oldest dependencies: make setup-test makes it")
    done = subprocess.run(
        [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not clients",
         "-k", "not (2024-10-07 or 2024-11-05 or 2025-03-26 or 2025-06-18)",  # older versions need no older packages
         "tests/test_transcripts.py", "tests/cli/test_options.py", "tests/cli/test_commands.py",
         "tests/server/http/test_listener.py", "tests/server/http/test_http1.py", "tests/transports/test_websocket.py",
         "tests/transports/test_websocket_both_ends.py", "tests/transports/test_websocket_client.py",
         "tests/client/http",
         "tests/sources", "tests/docs", "tests/cli/install", "tests/compat"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=1800, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
