"""Whose message it was, by its ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcpd.protocol.wire.ndjson import END_BYTES, OversizedMessage

LARGE = "x" * 2000


def torn(message: Any, **how: Any) -> OversizedMessage:
    line = json.dumps(message, **how).encode()
    return OversizedMessage(line[:END_BYTES], line[-END_BYTES:])


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("request_id", [0, 5, -7, "a", 'q"\\', "é☃"])
@pytest.mark.parametrize(
    ("members", "is_answer"),
    [
        (("jsonrpc", "id", "result"), True),
        (("result", "jsonrpc", "id"), True),
        (("id", "result", "jsonrpc"), True),
        (("jsonrpc", "error", "id"), True),
        (("id", "jsonrpc", "error"), True),
        (("jsonrpc", "id", "method", "params"), False),
        (("method", "params", "jsonrpc", "id"), False),
        (("jsonrpc", "method", "params", "id"), False),
    ],
)
def test_the_ids_that_clients_and_servers_write(
    members: Any, is_answer: bool, request_id: Any, separators: Any
) -> None:
    large = {"text": LARGE, "id": 99, "end": {"id": 98}}
    values = {"jsonrpc": "2.0", "id": request_id, "result": large, "error": large, "method": "x/y", "params": large}
    found = torn({name: values[name] for name in members}, separators=separators)
    assert (found.id, found.is_answer) == (request_id, is_answer)


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/x", "params": {"text": LARGE, "id": 5}},
        {"method": "notifications/x", "params": {"text": LARGE + ',"id":5}'}},
        [{"jsonrpc": "2.0", "id": 5, "result": LARGE}],
        LARGE,
        {"jsonrpc": "2.0", "id": None, "result": LARGE},
        {"jsonrpc": "2.0", "id": 1.5, "result": LARGE},
    ],
)
def test_what_has_no_id_of_its_own_has_none(message: Any) -> None:
    assert torn(message).id is None


@given(st.binary(max_size=600), st.binary(max_size=600))
def test_rubbish_has_none_either_and_never_fails(head: bytes, tail: bytes) -> None:
    found = OversizedMessage(head, tail)
    assert found.id is None or isinstance(found.id, int | str)
    assert found.is_answer in (True, False, None)
