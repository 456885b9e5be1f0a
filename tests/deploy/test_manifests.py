"""The files of `deploy/` for containers, held against what others publish of their form: the schemas of Kubernetes and
of Compose, and the rules of hadolint. The same file with one mistake is refused: the judge does judge."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import REPOSITORY
from support.service_stage import DEPLOY

TOOLS = REPOSITORY / ".tools" / "manifests" / "bin"


def judged(command: list[str], path: Path) -> tuple[bool, str]:
    """Whether a tool takes a file, and what it says."""
    program = TOOLS / command[0]
    if not program.exists():
        pytest.skip("needs the schemas of Kubernetes and Compose, and hadolint: make setup-test installs them")
    done = subprocess.run([program, *command[1:], str(path)], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow  # two starts of programs with large schemas
@pytest.mark.parametrize(
    ("name", "command", "right", "wrong"),
    [
        (
            "container/compose.yaml",
            ["check-jsonschema", "--builtin-schema", "vendor.compose-spec"],
            "healthcheck:",
            "healthchek:",
        ),
        (
            "kubernetes/mcpd.yaml",
            ["kubernetes-validate", "--strict", "--kubernetes-version", "1.37"],
            "readinessProbe:",
            "readyProbe:",
        ),
        ("container/Containerfile", ["hadolint", "--failure-threshold", "style"], "\nCMD [", "\nCMD echo "),
    ],
    ids=["compose", "kubernetes", "image"],
)
def test_it_is_what_others_read(name: str, command: list[str], right: str, wrong: str, tmp_path: Path) -> None:
    path = DEPLOY / name
    text = path.read_text()
    is_taken, said = judged(command, path)
    assert is_taken, said
    if name.startswith("kubernetes"):
        assert said.count(" passed for resource ") == text.count("\nkind: ")

    assert right in text
    changed = tmp_path / path.name
    changed.write_text(text.replace(right, wrong, 1))
    assert not judged(command, changed)[0]
