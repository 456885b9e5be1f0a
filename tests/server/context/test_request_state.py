"""The sealed state by itself. Spec: 2026-07-28 basic/patterns/mrtr; S26-084, S26-085, S26-086, S26-087."""

from __future__ import annotations

from base64 import b64decode

import pytest
from hypothesis import given, strategies as st
from msgspec import Raw

from mcpd.errors import InvalidParams
from mcpd.protocol.state_keys import StateKeys
from mcpd.server.context import request_state
from mcpd.server.context.request_state import RequestStateCodec

KEY = b"k" * 16
JSON = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text())


@given(st.binary(), st.dictionaries(st.text(), st.sampled_from([b"1", b'{"a":[null]}', b'"\xc3\xa9"'])), JSON)
def test_what_is_sealed_can_be_opened(binding: bytes, answers: dict[str, bytes], kept: dict[str, object]) -> None:
    raw = {key: Raw(answer) for key, answer in answers.items()}
    state = RequestStateCodec([KEY]).open(binding, RequestStateCodec([KEY]).seal(binding, raw, kept))
    assert {key: bytes(answer) for key, answer in state.answers.items()} == answers
    assert state.kept == kept


SEALED = RequestStateCodec([KEY]).seal(b"binding", {"a": Raw(b"1")}, {"b": 2})


@given(st.integers(0, len(SEALED) - 1), st.characters(min_codepoint=33, max_codepoint=126))
def test_no_character_of_it_can_be_changed(position: int, other: str) -> None:
    changed = SEALED[:position] + other + SEALED[position + 1 :]
    if changed == SEALED:
        return
    with pytest.raises(InvalidParams, match="requestState"):
        RequestStateCodec([KEY]).open(b"binding", changed)


@given(st.text())
def test_made_up_states_are_refused(made_up: str) -> None:
    with pytest.raises(InvalidParams, match="requestState"):
        RequestStateCodec([KEY]).open(b"", made_up)


def test_a_state_is_bound_to_key_and_request() -> None:
    sealed = RequestStateCodec([KEY]).seal(b"one", {}, {})
    RequestStateCodec([KEY]).open(b"one", sealed)
    for key, binding in ((KEY, b"other"), (KEY, b""), (b"j" * 16, b"one"), (KEY + b"k", b"one")):
        with pytest.raises(InvalidParams):
            RequestStateCodec([key]).open(binding, sealed)


def test_a_state_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(request_state.time, "time", lambda: now)
    sealed = RequestStateCodec([KEY], lifetime=10).seal(b"", {}, {})
    now = 110.0
    RequestStateCodec([KEY]).open(b"", sealed)
    now = 110.1
    with pytest.raises(InvalidParams, match="expired"):
        RequestStateCodec([KEY]).open(b"", sealed)


def test_the_client_can_read_but_not_write() -> None:
    """S26-158: it holds nothing but the client's own answers and what the tool keeps; no key, no name."""
    raw = b64decode(RequestStateCodec([KEY]).seal(b"principal", {"who": Raw(b'"Ada"')}, {"n": 1}))
    assert b"Ada" in raw
    assert b"principal" not in raw
    assert KEY not in raw


def test_a_short_key_is_no_key() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        StateKeys([b"short"])
