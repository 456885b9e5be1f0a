"""Tool arguments while a model writes them (mcp-apps-life-02)."""

from __future__ import annotations

import copy
import itertools
import json
import math
import sys
import time
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from mcpd.apps.host.tool_call import MAX_CHARS, PartialArguments
from mcpd.errors import ConfigurationError


def heal(text: str) -> dict[str, Any] | None:
    """The object that `text` begins, as far as it goes; None if no object has begun or none can come of it."""
    return PartialArguments().feed(text)


@pytest.mark.parametrize(
    ("text", "healed"),
    [
        ("", None),
        ("  ", None),
        ("{", {}),
        (' {"', {}),
        ('{"a', {}),
        ('{"a"', {}),
        ('{"a":', {}),
        ('{"a": "', {"a": ""}),
        ('{"a": "Lon', {"a": "Lon"}),
        ('{"a": "Lon\\', {"a": "Lon"}),
        ('{"a": "Lon\\u00', {"a": "Lon"}),
        ('{"a": "\\ud83d', {"a": ""}),
        ('{"a": "\\ud83d\\ude0', {"a": ""}),
        ('{"a": "\\ud83d\\ude00', {"a": "😀"}),
        ('{"a": "\\ud83dx', {"a": "\ufffdx"}),
        ('{"a": "\\ude00\\ud83d"', {"a": "\ufffd\ufffd"}),
        ('{"a": "x", ', {"a": "x"}),
        ('{"a": "x", "b"', {"a": "x"}),
        ('{"a": t', {}),
        ('{"a": tru', {}),
        ('{"a": true', {"a": True}),
        ('{"a": nul', {}),
        ('{"a": null', {"a": None}),
        ('{"a": false}', {"a": False}),
        ('{"a": -', {}),
        ('{"a": -1', {"a": -1}),
        ('{"a": 1.', {"a": 1}),
        ('{"a": 1.5', {"a": 1.5}),
        ('{"a": 1.5e', {"a": 1.5}),
        ('{"a": 1.5e+', {"a": 1.5}),
        ('{"a": 1.5e+2', {"a": 150.0}),
        ('{"a": [', {"a": []}),
        ('{"a": [1, 2', {"a": [1, 2]}),
        ('{"a": [1, 2,', {"a": [1, 2]}),
        ('{"a": [1, t', {"a": [1]}),
        ('{"a": [[', {"a": [[]]}),
        ('{"a": {"b": {', {"a": {"b": {}}}),
        ('{"a": {"b": [{"c": "d', {"a": {"b": [{"c": "d"}]}}),
        ('{"a": 1, "a": "b', {"a": "b"}),
        ('{"a": 1}  \n', {"a": 1}),
    ],
)
def test_what_is_open_is_closed_and_what_is_half_is_dropped(text: str, healed: Any) -> None:
    """mcp-apps-life-02: "Partial arguments have unclosed structures auto-closed"."""
    assert heal(text) == healed


@pytest.mark.parametrize(
    "text",
    [
        "[1",
        '"text',
        "nul",
        "x",
        "{1",
        "{,",
        '{"a" 1',
        '{"a": 1 2',
        '{"a": x',
        '{"a": truth',
        '{"a": 01}',
        '{"a": 1.e5,',
        '{"a": +1',
        '{"a": NaN',
        '{"a": "\x01',
        '{"a": "\n"',
        '{"a": "\\x',
        '{"a": "\\u12g4',
        '{"a": 1,}',
        '{"a": [1,]',
        '{"a": [1}',
        '{"a": {]',
        '{"a": 1}}',
        '{"a": 1} x',
    ],
)
def test_what_is_no_json_object_has_nothing_to_show(text: str) -> None:
    reader = PartialArguments()
    assert reader.feed(text) is None
    assert reader.broken
    assert reader.feed("}") is None
    assert reader.complete() is None


def test_what_was_good_before_it_broke_was_shown_until_then() -> None:
    reader = PartialArguments()
    assert reader.feed('{"a": 1, ') == {"a": 1}
    assert reader.feed("oops") is None


def test_no_news_is_none() -> None:
    reader = PartialArguments()
    assert reader.feed("  ") is None
    assert reader.feed("{") == {}
    assert reader.feed('"key') is None
    assert reader.feed('":') is None
    assert reader.feed(' "v') == {"key": "v"}
    assert reader.feed("") is None
    assert reader.feed('"') is None  # the value was there already
    assert reader.complete() is None
    assert reader.feed("}") is None
    assert reader.complete() == {"key": "v"}


def test_depth_and_size_are_bounded() -> None:
    """A hostile model's text can cost no more than reading it."""
    assert heal('{"a":' + "[" * 63) is not None
    reader = PartialArguments()
    assert reader.feed('{"a":' + "[" * 1000) is None
    assert "recursion limit" in reader.broken
    reader = PartialArguments()
    assert reader.feed('{"a": "' + "x" * MAX_CHARS) is None
    assert "characters" in reader.broken
    reader = PartialArguments()
    assert reader.feed('{"a": ' + "1" * 5000) is None
    assert "number" in reader.broken


def test_it_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jiter", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'mcpd-server\[apps\]'"):
        heal('{"a": 1')


def test_the_cost_is_linear_however_small_the_chunks() -> None:
    """Eight times the text takes about eight times as long, not sixty-four."""

    def cost(characters: int) -> float:
        text = json.dumps({"code": "x = 1 " * (characters // 6)})
        best = math.inf
        for _ in range(3):
            reader = PartialArguments()
            start = time.process_time()
            for at in range(0, len(text), 8):
                reader.feed(text[at : at + 8])
            best = min(best, time.process_time() - start)
        return best

    assert cost(240_000) < 24 * cost(30_000)


def test_a_long_string_is_shown_as_it_grows() -> None:
    reader = PartialArguments()
    reader.feed('{"code": "')
    shown = [len(value["code"]) for _ in range(20_000) if (value := reader.feed("abcdefgh")) is not None]
    assert shown == sorted(shown)
    assert shown[-1] > 20_000 * 8 * 0.99
    assert reader.feed('"}') == {"code": "abcdefgh" * 20_000}


# --------------------------------------------------------------------------------------- properties

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(), v, max_size=4), max_leaves=12
)
objects = st.dictionaries(st.text(), values, max_size=5)
texts = st.builds(
    lambda value, ascii_only, indent: json.dumps(value, ensure_ascii=ascii_only, indent=indent),
    objects,
    st.booleans(),
    st.sampled_from([None, 1]),
)


def is_prefix(part: Any, whole: Any, *, is_last: bool = True) -> bool:
    """Whether `part` shows the beginning of `whole`. Only what stands last may be unfinished."""
    if not is_last:
        return bool(part == whole) and type(part) is type(whole)
    if isinstance(whole, dict):
        if not isinstance(part, dict) or list(part) != list(whole)[: len(part)]:
            return False
        last = len(part) - 1
        return all(is_prefix(part[key], whole[key], is_last=at == last) for at, key in enumerate(part))
    if isinstance(whole, list):
        if not isinstance(part, list) or len(part) > len(whole):
            return False
        last = len(part) - 1
        return all(is_prefix(part[at], whole[at], is_last=at == last) for at in range(len(part)))
    if isinstance(whole, str):
        return isinstance(part, str) and whole.startswith(part)
    if isinstance(whole, bool) or whole is None:
        return part is whole
    return isinstance(part, (int, float)) and not isinstance(part, bool)


@given(texts, st.data())
def test_every_prefix_heals_to_a_prefix_of_the_value(text: str, data: st.DataObject) -> None:
    """mcp-apps-life-02: an object, with nothing in it that the whole does not have."""
    end = data.draw(st.integers(0, len(text)))
    healed = heal(text[:end])
    assert (healed is None) == ("{" not in text[:end])
    if healed is not None:
        assert is_prefix(healed, json.loads(text))


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False), st.data())
def test_an_unfinished_number_has_the_first_digits_of_the_real_one(number: float, data: st.DataObject) -> None:
    text = json.dumps(number)
    part = text[: data.draw(st.integers(1, len(text)))]
    healed = heal('{"n": ' + part)
    assert healed is not None
    if "n" in healed:
        assert any(json.loads(part[:end]) == healed["n"] for end in range(1, len(part) + 1) if is_json(part[:end]))


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@given(texts, st.lists(st.integers(1, 7), min_size=1))
def test_any_chunks_end_in_what_json_loads_gives(text: str, sizes: list[int]) -> None:
    """Chunks cut escapes, numbers and surrogates anywhere; each shown state is one that `heal` gives, too."""
    reader, at, seen, shown = PartialArguments(), 0, "", None
    for size in itertools.cycle(sizes):
        if at >= len(text):
            break
        chunk, at = text[at : at + size], at + size
        seen += chunk
        fed = reader.feed(chunk)
        if fed is not None:
            shown = copy.deepcopy(fed)
        if len(text) < 150:
            assert shown == heal(seen)
    assert reader.complete() == json.loads(text)
    assert not reader.broken
    assert shown == json.loads(text)


@given(st.text(st.sampled_from('{}[]",:\\u0123dD8tfnrue-+.E '), max_size=60))
def test_no_text_is_a_crash(text: str) -> None:
    """What heals is the beginning of some JSON: what json.loads takes whole, we take too, and give the same."""
    healed = heal(text)
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return
    assume(isinstance(whole, dict) and "\\ud" not in text.lower())
    assert healed == whole


@pytest.mark.parametrize(
    ("chunks", "shown"),
    [
        (['{"a": "x\ud83d', '\ude00"}'], ["x", "x😀"]),
        (['{"a": "x\ud83d', 'y"}'], ["x", "x\ufffdy"]),
        (['{"a": "x\ude00', '\ud83d', '\ud83d', '\ude00"}'], ["x\ufffd", None, "x\ufffd\ufffd", "x\ufffd\ufffd😀"]),
    ],
)  # fmt: skip
def test_a_character_may_be_cut_in_two(chunks: list[str], shown: list[str | None]) -> None:
    """What comes as two strings from a program that counts in UTF-16; what is shown can always be encoded."""
    partial = PartialArguments()
    for chunk, expected in zip(chunks, shown, strict=True):
        arguments = copy.deepcopy(partial.feed(chunk))
        assert arguments == (None if expected is None else {"a": expected})
    assert partial.complete() == {"a": shown[-1]}
