"""`oidc-provider`, the certified authorization server of others, as a process: its user is ada, who agrees to all.

with provider("http://127.0.0.1:8080/mcp", ["use"]) as there:
    Jwt(there.issuer, …)
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

__all__ = ["NODE", "Provider", "free_port", "provider"]

REPOSITORY = Path(__file__).resolve().parent.parent.parent
NODE = REPOSITORY / ".tools" / "bin" / "node"
FOLDER = REPOSITORY / "tests" / "oidc"


class Provider(NamedTuple):
    """The running process."""

    issuer: str
    log: Path

    def said(self) -> list[str]:
        """What it did, a line each: `registers NAME`, `granted TYPE`, `refused ERROR …`."""
        return self.log.read_text(encoding="utf-8").splitlines()

    def granted(self) -> list[str]:
        """The types of the grants that it has answered with tokens, in order."""
        return [line.partition(" ")[2] for line in self.said() if line.startswith("granted ")]


def free_port() -> int:
    """A port that nobody listens on: tokens name it before the server is there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def provider(resource: str, scopes: Sequence[str], **options: Any) -> Iterator[Provider]:
    """It issues tokens for this resource; `options` are those that `provider.mjs` names. Skips where it is missing."""
    if not (NODE.exists() and (FOLDER / "node_modules" / "oidc-provider").exists()):
        pytest.skip("needs oidc-provider: make setup-test installs it")
    settings = json.dumps({"resource": resource, "scopes": list(scopes), **options})
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [NODE, FOLDER / "provider.mjs", settings],
                stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text(encoding="utf-8")
            yield Provider(json.loads(line)["issuer"], log)
        finally:
            process.kill()
            process.communicate()
