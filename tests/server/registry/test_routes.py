"""Texts cut at fixed pieces: what a regular expression finds, in one pass."""

from __future__ import annotations

import itertools
import re

import pytest

from mcpd.transports.routes import values_across, values_between

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
    assert values_across(["/", *["-"] * 20, ".html"], "/" + "-/" * 4_000, range(20)) is None


@pytest.mark.parametrize("template", TEMPLATES)
def test_values_that_may_have_a_slash(template: str) -> None:
    for wide in itertools.product((False, True), repeat=template.count("{}")):
        pattern = re.compile(template.replace("{}", "%s") % tuple("(.+)" if each else "([^/]+)" for each in wide))
        places = {index for index, each in enumerate(wide) if each}
        for length in range(7):
            for letters in itertools.product("x-/", repeat=length):
                text = "/" + "".join(letters)
                expected = pattern.fullmatch(text)
                assert values_across(template.split("{}"), text, places) == (expected and list(expected.groups())), (
                    text,
                    wide,
                )
