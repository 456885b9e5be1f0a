"""Another distribution is called mcpd and has a package of that name: whoever has both is told what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import REPOSITORY, Child

THEIRS = 'from ._logger import log\n__version__ = "0.1.0"\n'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages with a copy of ours."""
    shutil.copytree(REPOSITORY / "mcpd", tmp_path / "mcpd", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(REPOSITORY / "assets", tmp_path / "mcpd" / "_assets")
    return tmp_path


def run(child: Child, site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**child.env, "PYTHONPATH": str(site)}
    return subprocess.run(
        [child.python, *words], cwd=site, env=env, capture_output=True, text=True, timeout=100, check=False
    )


def installed(site: Path, name: str) -> None:
    """What an installer writes of a distribution that has a package mcpd."""
    info = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    (info / "top_level.txt").write_text("mcpd\n")
    (info / "RECORD").write_text("mcpd/__init__.py,,\n")


CURE = re.compile(r"-m pip uninstall mcpd mcpd-server; \S+ -m pip install mcpd-server")


def test_alone_nothing_is_said(child: Child, site: Path) -> None:
    installed(site, "mcpd-server")
    done = run(child, site, "-W", "error", "-c", "import mcpd; mcpd.Server")
    assert (done.returncode, done.stderr) == (0, "")


def test_both_are_there_and_ours_came_last(child: Child, site: Path) -> None:
    """All works until one of them is removed, and takes files of the other with it: said when it is imported."""
    installed(site, "mcpd")
    installed(site, "mcpd-server")
    done = run(child, site, "-c", "import mcpd; mcpd.Server")
    assert done.returncode == 0
    assert "RuntimeWarning: mcpd-server shares its folder with another distribution, mcpd" in done.stderr
    assert CURE.search(done.stderr)
    checked = run(child, site, "-W", "ignore", "-m", "mcpd", "check")
    assert checked.returncode == 1
    assert "mcpd: problem: the distribution mcpd is installed too" in checked.stderr


def test_theirs_came_last(child: Child, site: Path) -> None:
    """Their top of the package, our modules below: no traceback of an import that fails somewhere in between."""
    (site / "mcpd" / "__init__.py").write_text(THEIRS)
    (site / "mcpd" / "_logger.py").write_text("log = None\n")
    for words in (["-m", "mcpd", "serve", "--stdio"], ["-c", "from mcpd.cli import main; main()"]):
        done = run(child, site, *words)
        assert done.returncode == 1
        assert CURE.search(done.stderr)
        assert "Traceback" not in done.stderr
    done = run(child, site, "-c", "from mcpd.server import Server")
    assert CURE.search(done.stderr.splitlines()[-1])


def test_theirs_was_removed_and_our_top_with_it(child: Child, site: Path) -> None:
    os.unlink(site / "mcpd" / "__init__.py")
    # Without site-packages, where the checkout that runs this stands in the path.
    done = run(child, site, "-S", "-c", "from mcpd.cli import main; main()")
    assert done.returncode == 1
    assert CURE.search(done.stderr)
    assert "Traceback" not in done.stderr


def test_every_advice_names_the_right_distribution() -> None:
    """`pip install mcpd…` installs the other project over ours."""
    wrong = re.compile(r"pip install ['\"]?mcpd(?![-\w])|\bmcpd\[")
    files = [*(REPOSITORY / "mcpd").rglob("*.py"), REPOSITORY / "pyproject.toml", REPOSITORY / "CHANGELOG.md"]
    files += (REPOSITORY / "docs").rglob("*.md")
    found = [path for path in files if wrong.search(path.read_text(encoding="utf-8"))]
    assert found == []
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert [match[0] for match in wrong.finditer(readme)] == ["pip install mcpd"]
    assert "`pip install mcpd` installs another project, which overwrites files of this one." in readme.replace(
        "\n", " "
    )


def test_looking_costs_one_folder_and_no_metadata(child: Child) -> None:
    done = subprocess.run(
        [child.python, "-X", "importtime", "-c", "import mcpd"],
        env={name: value for name, value in child.env.items() if not name.startswith("COVERAGE_")},
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert "importlib.metadata" not in done.stderr
