"""The core tests with every Python that mcpd supports and this machine has, each in an environment of its own.

A Python is looked for on PATH, and among pyenv's versions. `all_pythons.py ARGUMENTS…` hands the arguments to pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")


def find(version: str) -> str | None:
    """An interpreter of this version that runs; the name of one on PATH may be a shim for none."""
    on_path = shutil.which(f"python{version}")
    folders = sorted(PYENV.glob(f"{version}.*"), key=lambda path: [int(part) for part in path.name.split(".")[2:3]])
    for python in [*filter(None, [on_path]), *(str(folder / "bin" / "python") for folder in reversed(folders))]:
        asked = [python, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == version:
            return python
    return None


def prepare(version: str, python: str) -> str:
    """The interpreter of an environment in which the tests can run."""
    folder = ROOT / ".tools" / "pythons" / version
    project, stamp = ROOT / "pyproject.toml", folder / ".test"
    inside = str(folder / "bin" / "python")
    if not stamp.exists() or stamp.stat().st_mtime < project.stat().st_mtime:
        subprocess.run([python, "-m", "venv", "--clear", "--without-pip", folder], check=True)
        install = [sys.executable, ROOT / ".ci" / "install.py", inside, "--editable", ".[all,test]"]
        subprocess.run(install, cwd=ROOT, check=True)
        stamp.touch()
    return inside


def main(*arguments: str) -> int:
    """Run the tests with each, and give 0 if they pass with all."""
    found = {version: python for version in SUPPORTED if (python := find(version)) is not None}
    say(f"found: {', '.join(f'{version} ({python})' for version, python in found.items())}")
    if missing := [version for version in SUPPORTED if version not in found]:
        say(f"not on this machine, so skipped: {', '.join(missing)}")
    failed = []
    for version, python in found.items():
        say(f"Python {version}")
        tests = [prepare(version, python), "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]
        tests += ["-p", "no:cacheprovider", "-m", "not slow and not clients", *arguments]
        if subprocess.run(tests, cwd=ROOT, check=False).returncode:
            failed.append(version)
    say(f"failed with: {', '.join(failed)}" if failed else f"passed with: {', '.join(found)}")
    return bool(failed)


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
