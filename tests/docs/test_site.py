"""The documentation as a whole: the site, the reference that follows from the code, spelling, and plain English."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import REPOSITORY
from support.english import findings

DOCS = REPOSITORY / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if "decisions" not in path.parts)


def navigation() -> list[str]:
    """The pages in the navigation of the site, in order."""
    text = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    return [page for section in yaml.safe_load(text)["nav"] for pages in section.values() for page in pages]


def test_each_page_is_in_the_navigation_once() -> None:
    assert sorted(navigation()) == PAGES


def test_each_page_can_be_reached_from_the_index() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([^)#]+)", text))
    assert linked >= set(PAGES) - {"index.md"}


@pytest.mark.medium
@pytest.mark.parametrize(
    "name", ["authorization-servers.md", "command-line.md", "environment.md", "errors.md", "python.md", "versions.md"]
)
def test_the_reference_is_what_the_code_says(name: str) -> None:
    # In a process of its own: other tests register options of extensions.
    program = f"import runpy; print(runpy.run_path({str(DOCS / 'generate.py')!r})['PAGES'][{name!r}](), end='')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, encoding="utf-8", timeout=100,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (DOCS / "reference" / name).read_text(encoding="utf-8") == done.stdout, "run docs/generate.py"


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Every link and anchor leads somewhere, and each page has a twin in Markdown."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=REPOSITORY, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "context" in (tmp_path / "llms.txt").read_text(encoding="utf-8")
    for page in PAGES:
        folder = tmp_path / page.removesuffix(".md").removesuffix("index")
        assert (folder / "index.html").is_file(), page
        assert (folder / "index.md").is_file(), page
    # Pages that had other names until November 2026.
    assert "../resources/#caching" in (tmp_path / "caching" / "index.html").read_text(encoding="utf-8")


@pytest.mark.medium
def test_words_are_spelled_as_in_dictionaries() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "codespell_lib", "--quiet-level", "3", "docs", "README.md", "DEVELOPERS.md", "mcpd"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


MOST_PER_1000_WORDS = 1.5


@pytest.mark.medium
def test_english_is_plain() -> None:
    """The patterns of `support/english.py` are rare in each package, in the README and in each page."""
    lines = (REPOSITORY / "tests" / "english_allowed.txt").read_text(encoding="utf-8").splitlines()
    allowed = {line.partition("#")[0].strip() for line in lines} - {""}
    too_many = []
    for path in [*sorted((REPOSITORY / "mcpd").iterdir()), *(DOCS / page for page in PAGES), REPOSITORY / "README.md"]:
        if path.name != "__pycache__":
            words, found = findings(path, allowed)
            if len(found) > max(1, MOST_PER_1000_WORDS * words / 1000):
                too_many.append(f"{path.name}: {len(found)} in {words} words: {found[:3]}")
    assert not too_many, "\n".join(too_many)
