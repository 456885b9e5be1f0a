"""Texts cut at fixed pieces: what a regular expression finds, in one pass."""

from __future__ import annotations

import itertools
import re

import pytest

from mcpd.registry.segments import values_between

TEMPLATES = ["/{}-{}", "/{}{}", "/{}-{}-{}", "/{}-/{}", "/{}/{}-", "/x{}-{}x", "/{}--{}", "/{}-{}/{}", "/{}{}{}-"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_same_as_a_regular_expression(template: str) -> None:
    pattern = re.compile(template.replace("{}", "([^/]+)"))
    found = 0
    for length in range(7):
        for letters in itertools.product("x-/", repeat=length):
            text = "/" + "".join(letters)
            expected = pattern.fullmatch(text)
            found += expected is not None
            assert values_between(template.split("{}"), text) == (expected and list(expected.groups())), text
    assert found > 3


def test_it_takes_one_pass() -> None:
    assert values_between(["/", *["-"] * 50, ".html"], "/" + "-" * 65_000) is None
