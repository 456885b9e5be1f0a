"""conformance/seeds/: every case of the MCP Apps test specification, and every check of Terragrunt's, has tests."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.source_code import parsed

REPOSITORY = Path(__file__).resolve().parent.parent
CATALOGUE: dict[str, Any] = tomllib.loads(
    (REPOSITORY / "conformance" / "seeds" / "mcp_apps.toml").read_text(encoding="utf-8")
)


@functools.cache
def functions(path: Path) -> dict[str, str]:
    """The source of every test in a file."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    nodes = [node for node in parsed(source).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in nodes}


def test_the_catalogue_has_every_case_of_the_seed_and_no_other(shared: Path) -> None:
    (seed,) = (shared / "seeds").glob("000_*")
    cases = re.findall(r"^#### \d\.\d (.*)\n\*\*Test ID\*\*: `([^`]+)`", seed.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(cases) == 45
    assert {case: CATALOGUE[case]["title"] for case in CATALOGUE} == {case: title for title, case in cases}


def test_every_case_is_someones_duty() -> None:
    assert {case["duty"] for case in CATALOGUE.values()} == {"server", "host", "both"}


@pytest.mark.parametrize("case", CATALOGUE)
def test_the_tests_of_a_case_exist_and_name_it(case: str) -> None:
    """A test that was renamed, moved, or turned to something else is found out here."""
    tests = CATALOGUE[case]["tests"]
    assert tests
    assert len(tests) == len(set(tests))
    for test in tests:
        path, _, name = test.partition("::")
        found = functions(REPOSITORY / path)
        assert name in found, f"{case}: there is no {test}"
        assert case in found[name], f"{test} does not say that it is about {case}"


@pytest.mark.parametrize("case", [name for name, case in CATALOGUE.items() if case["duty"] in ("server", "both")])
def test_a_servers_duty_is_proved_on_the_wire(case: str) -> None:
    """By bytes through every transport, in both eras: tests/server/extensions/ui runs these over each of them."""
    assert any(test.startswith("tests/server/extensions/ui/") for test in CATALOGUE[case]["tests"])


# ------------------------------------------------------------------- the documents of Terragrunt

TERRAGRUNT: dict[str, Any] = tomllib.loads(
    (REPOSITORY / "conformance" / "seeds" / "terragrunt.toml").read_text(encoding="utf-8")
)


def test_terragrunt_has_every_category_of_its_seed_and_as_many_checks(shared: Path) -> None:
    (seed,) = (shared / "seeds").glob("003_*")
    text = seed.read_text(encoding="utf-8")
    categories = re.findall(r"^### \d+\. (.*) \((\d+) tests\)$", text, re.MULTILINE)
    assert len(categories) == 10
    found = Counter(check["category"] for check in TERRAGRUNT.values())
    assert found == {name: int(number) for name, number in categories}
    assert f"**Total MCP Compliance Tests**: {len(TERRAGRUNT)}" in text
    assert len(TERRAGRUNT) == 57


@pytest.mark.parametrize("check", TERRAGRUNT)
def test_the_tests_of_a_check_exist_and_name_it(check: str) -> None:
    for test in TERRAGRUNT[check]["tests"]:
        path, _, name = test.partition("::")
        found = functions(REPOSITORY / path)
        assert re.search(rf"\b{check}\b(?!-)", found[name].partition('"""')[2].partition('"""')[0]), test
        assert "talking(" in found[name] or "greeted(" in found[name], f"{test} is not on the wire"
