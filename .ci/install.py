"""Install into an environment what pip would: `install.py ENVIRONMENT/bin/python ARGUMENTS…`.

By uv where `make` could get it from where pip gets packages, which takes a fraction of the time; by pip else. An
environment that is not there yet is made.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

UV = Path(__file__).resolve().parent.parent / ".tools" / "uv" / "bin" / "uv"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]

# uv reads none of pip's settings; packages are to come from the same places.
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}


def settings() -> dict[str, str]:
    """What pip is told by its files and by the environment, in uv's words."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in listed.splitlines():  # the environment comes last, and counts most
        key, _, value = line.partition("=")
        if name := SETTINGS.get(key.rpartition(".")[2]):
            found[name] = str(ast.literal_eval(value))
    # pip takes the newest of all places, uv the first place's.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_PYTHON_DOWNLOADS": "never", **found}


def main(python: str, *arguments: str) -> int:
    """Install, and give the exit code."""
    folder = Path(python).parent.parent
    if not Path(python).exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    if UV.exists():
        command = [UV, "pip", "install", "--quiet", "--python", python, *arguments]
        if (
            subprocess.run(command, env={**settings(), **os.environ}, stderr=subprocess.DEVNULL, check=False).returncode
            == 0
        ):
            return 0
        sys.stderr.write("uv could not install this, so pip does\n")
    return subprocess.run([*PIP, "--python", python, "install", "-qq", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
