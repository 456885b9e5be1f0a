"""What mypy and pyright tell authors: nothing of programs that are right, the lines that are wrong of others.

The programs in `programs/` are read, never run; `# error` marks each line of them that has to be refused.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
NODE = REPOSITORY / ".tools" / "bin" / "node"
PYRIGHT = HERE / "node_modules" / "pyright" / "index.js"
PROGRAMS = sorted((HERE / "programs").glob("*.py"))


def marked() -> set[tuple[str, int]]:
    """(file, line) of each mistake."""
    return {
        (path.name, number)
        for path in PROGRAMS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "# error" in line
    }


def test_there_are_programs_of_both_kinds() -> None:
    assert {"a_client.py", "a_server.py", "mistakes.py"} <= {path.name for path in PROGRAMS}
    assert {name for name, _ in marked()} == {"mistakes.py"}


def test_mypy(tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(tmp_path),
         "--no-error-summary", *map(str, PROGRAMS)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    found = {
        (Path(hit[1]).name, int(hit[2])) for hit in re.finditer(r"^(.+?):(\d+): error:", done.stdout, re.MULTILINE)
    }
    assert done.returncode == 1, done.stdout + done.stderr
    assert found == marked(), done.stdout


def test_pyright(tmp_path: Path) -> None:
    if not (NODE.exists() and PYRIGHT.exists()):
        pytest.skip("needs Node 22 and pyright: make setup-test installs both")
    settings = {
        "typeCheckingMode": "standard",
        "include": [os.path.relpath(path, tmp_path) for path in PROGRAMS],
        "extraPaths": [str(REPOSITORY)],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [NODE, PYRIGHT, "--project", str(tmp_path), "--pythonpath", sys.executable, "--outputjson"],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    told = json.loads(done.stdout)["generalDiagnostics"]
    found = {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in told if one["severity"] == "error"}
    assert found == marked(), done.stdout
