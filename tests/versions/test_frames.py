"""A request that is read in one step opens the call that it opens in two, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode

from mcpd.budget import CALL
from mcpd.errors import ProtocolError
from mcpd.jsonrpc import Request, decode
from mcpd.session import Call, Opening, Session
from mcpd.types.base import META, EmptyResult
from mcpd.versions import table

ENVELOPE: dict[str, Any] = {f"{META}protocolVersion": table.MODERN[-1], f"{META}clientCapabilities": {}}

ASKED: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "echo", "arguments": {"text": "ä"}}),
    ("tools/list", {"cursor": "c"}),
    ("resources/read", {"uri": "a://b"}),
    ("prompts/get", {"name": "p", "arguments": {"a": "b"}}),
]
VERSIONS = ["2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


def frame_of(version: str, method: str, params: dict[str, Any], request_id: object = 1, **members: Any) -> bytes:
    if version in table.MODERN:
        params = {**params, "_meta": {**ENVELOPE, **params.get("_meta", {})}}
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params, **members}
    return json.dumps(message, ensure_ascii=False).encode()


def session_of(version: str) -> Session:
    """One in which each of these methods was asked for twice."""
    session = Session(opening=Opening(table.get(version)))
    for method, params in ASKED:
        asked = decode(frame_of(version, method, params))
        assert isinstance(asked, Request)
        for _ in range(2):
            session.receive_request(asked).version.learn_to_read(method)
            session.cancel(asked.id)
    return session


@pytest.mark.parametrize("version", VERSIONS)
def test_a_method_is_read_whole_from_its_second_time_on(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other with it. A version is the process's: what other tests have asked for is set aside."""
    monkeypatch.setattr(table, "_versions", {})
    session = Session(opening=Opening(table.get(version)))
    for number, (method, params) in enumerate(ASKED):
        frame = frame_of(version, method, params)
        for _ in range(2):
            assert session.open_frame(frame) is None
            call = plainly(session, frame)
            assert isinstance(call, Call)
            call.version.learn_to_read(method)
            session.cancel(call.id)
        assert session.open_frame(frame) is not None
        session.cancel(1)
        for other, more in ASKED[number + 1 :]:
            assert session.open_frame(frame_of(version, other, more)) is None


def plainly(session: Session, frame: bytes) -> Call | ProtocolError:
    """The plain way: envelope and params one after the other."""
    try:
        message = decode(frame)
        assert isinstance(message, Request)
        return session.receive_request(message)
    except ProtocolError as error:
        return error


def said(call: Call) -> tuple[object, ...]:
    meta = None if call.meta is None else (bytes(call.meta.client_info), call.meta.progress_token, call.meta.log_level)
    client = call.client
    return (
        call.id, call.method, call.version.name, encode(call.params), meta, bytes(call.raw), client.capabilities,
        client.info, call.log_level,
    )  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("method", "params"), ASKED)
def test_it_opens_the_same_call(version: str, method: str, params: dict[str, Any]) -> None:
    meta = {"progressToken": 7, f"{META}clientInfo": {"name": "n", "version": "1"}} | (
        {f"{META}logLevel": "debug"} if version in table.MODERN else {}
    )
    for given_params in (params, {**params, "_meta": meta}, {**params, "unknown": [1]}):
        short, plain = session_of(version), session_of(version)
        frame = frame_of(version, method, given_params)
        opened, expected = short.open_frame(frame), plainly(plain, frame)
        assert opened is not None
        assert isinstance(expected, Call)
        assert said(opened) == said(expected)
        assert short.in_flight.by_id == {1: opened}
        short.respond(opened, EmptyResult())
        assert not opened.is_open


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_as_it_should_be_is_left_to_the_plain_way(version: str) -> None:
    method, params = ASKED[0]
    is_modern = version in table.MODERN
    wrong = [
        frame_of(version, method, params, None),
        frame_of(version, method, params, 1.5),
        frame_of(version, method, params, jsonrpc="1.0"),
        frame_of(version, method, {"arguments": {}}),
        frame_of(version, "tools/unknown", params),
        frame_of(version, "initialize", params),
        frame_of(version, method, params)[:-1],
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b"[" + frame_of(version, method, params) + b"]",
        frame_of(version, method, params)[:-1] + b',"method":"tools/list"}',
        b"", b" ", b"\xff",
    ]  # fmt: skip
    if is_modern:
        wrong += [frame_of(version, method, {**params, "_meta": {f"{META}{name}": value}}) for name, value in (
            ("protocolVersion", "2025-11-25"), ("protocolVersion", 1), ("clientCapabilities", []),
            ("clientCapabilities", None), ("logLevel", "loud"), ("logLevel", 1))]  # fmt: skip
        wrong.append(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
    else:
        wrong.append(frame_of(version, method, {**params, "_meta": ENVELOPE}))
    session = session_of(version)
    for frame in wrong:
        assert session.open_frame(frame) is None, frame
    assert not session.in_flight


def test_limits_are_those_of_the_plain_way() -> None:
    """An id in use, as many calls as there may be, and calls that are counted."""
    version = table.MODERN[-1]
    method, params = ASKED[0]
    session = session_of(version)
    session.max_in_flight = 3
    for number in range(3):
        assert session.open_frame(frame_of(version, method, params, number)) is not None
        assert session.open_frame(frame_of(version, method, params, number)) is None
    assert session.open_frame(frame_of(version, method, params, 4)) is None

    session.max_in_flight = 1000
    opened = [session.open_frame(frame_of(version, method, params, number)) for number in range(3, 64)]
    assert None not in opened
    one_more = frame_of(version, method, params, 64)
    assert session.open_frame(one_more) is None
    counted = plainly(session, one_more)
    assert isinstance(counted, Call)
    assert counted.charge is not None
    assert counted.charge.size == CALL


def test_a_connection_without_a_version_takes_nothing_short() -> None:
    """Its first request says which era it is in."""
    session_of(table.MODERN[-1])  # there is a reader
    assert Session().open_frame(frame_of(table.MODERN[-1], *ASKED[0])) is None


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
_MEMBERS = st.sampled_from(["jsonrpc", "id", "method", "params", "name", "arguments", "cursor", "uri", "_meta",
                            "progressToken", *ENVELOPE, f"{META}logLevel", f"{META}clientInfo"])  # fmt: skip


@given(
    version=st.sampled_from(VERSIONS),
    asked=st.sampled_from(ASKED),
    changes=st.lists(st.tuples(st.sampled_from(["", "params", "_meta"]), _MEMBERS, _VALUES), max_size=3),
    cut=st.integers(0, 400),
)
def test_whatever_it_opens_the_plain_way_opens_too(
    version: str, asked: tuple[str, dict[str, Any]], changes: list[tuple[str, str, Any]], cut: int
) -> None:
    message: dict[str, Any] = json.loads(frame_of(version, *asked))
    for where, name, value in changes:
        place: Any = message
        if where:
            place = message.get("params")
        if where == "_meta" and isinstance(place, dict):
            place = place.setdefault("_meta", {})
        if isinstance(place, dict):
            place[name] = value
    frame = json.dumps(message).encode()
    frame = frame if cut >= len(frame) else frame[:cut]
    opened = session_of(version).open_frame(frame)
    if opened is not None:
        expected = plainly(session_of(version), frame)
        assert isinstance(expected, Call)
        assert said(opened) == said(expected)
