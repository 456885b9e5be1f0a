"""What code and tests cite can be looked up in this repository: rules, decisions, cases of the seed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from conftest import REPOSITORY

RULES = tomllib.loads((REPOSITORY / "docs" / "rules.toml").read_text(encoding="utf-8"))
CASES = tomllib.loads((REPOSITORY / "conformance" / "seeds" / "mcp_apps.toml").read_text(encoding="utf-8"))
DECISIONS = {f"D{int(path.stem[1:])}" for path in (REPOSITORY / "docs" / "decisions").glob("D*.md")}

_RULE = re.compile(r"\b(?:S2[56]-\d{3}|APP-[SHXV]-\d{2}|(?:AUTH|TASK|PROC|SCALE|OBS|ATT|MNT|EVT|FIL)-\d{2,3})\b")
_CASE = re.compile(r"\bmcp-apps-[a-z]+-\d{2}\b")
_DECISION = re.compile(r"\bD(?:[1-9]|1\d)\b(?!\.)")


def cited(folder: str, pattern: re.Pattern[str]) -> dict[str, str]:
    """What is cited below a folder, with the first file of each."""
    found: dict[str, str] = {}
    for path in sorted((REPOSITORY / folder).rglob("*")):
        if path.suffix not in {".py", ".jsonl", ".toml", ".mjs", ".md", ".html"} or "node_modules" in path.parts:
            continue
        for hit in pattern.findall(path.read_text(encoding="utf-8")):
            found.setdefault(hit, str(path.relative_to(REPOSITORY)))
    return found


@pytest.mark.parametrize("folder", ["mcpd", "tests", "conformance", "docs"])
def test_what_is_cited_can_be_looked_up(folder: str) -> None:
    unknown = {
        **{key: file for key, file in cited(folder, _RULE).items() if key not in RULES},
        **{key: file for key, file in cited(folder, _CASE).items() if key not in CASES},
    }
    assert not unknown


def test_decisions_that_are_cited_have_a_page() -> None:
    for folder in ("mcpd", "tests", "docs"):
        assert set(cited(folder, _DECISION)) <= DECISIONS
    assert {f"D{number}" for number in range(1, 20)} == DECISIONS


def test_each_rule_says_what_it_asks_and_where_it_stands() -> None:
    assert len(RULES) > 400
    for key, rule in RULES.items():
        assert _RULE.fullmatch(key), key
        assert set(rule) == {"text", "page"}, key
        assert 3 < len(rule["text"]) < 400, key
        assert re.match(r"20\d\d-\d\d-\d\d |MCP Apps |SEP-|security|our practice", rule["page"]), key


def test_pages_are_those_of_the_specification() -> None:
    spec = REPOSITORY.parent / "shared" / "spec"
    if not spec.is_dir():
        pytest.skip("needs the specification in ../shared")
    for key, rule in RULES.items():
        version, _, page = rule["page"].partition(" ")
        if version[:2] == "20" and page != "schema.json":
            assert (Path(spec) / f"mcp-{version}" / f"{page}.mdx").is_file(), (key, page)
