"""Bytes to messages and back. Spec: JSON-RPC 2.0; 2025-11-25 and 2026-07-28 basic/index."""

from __future__ import annotations

import json
import time
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from msgspec import UNSET, Raw

from mcpd.errors import InvalidParams, InvalidRequest, LocalProtocolError, ParseError, ProtocolError, RemoteError
from mcpd.protocol.jsonrpc import (
    ABSENT,
    MOST_PARTS,
    Batch,
    ErrorObject,
    Failure,
    Notification,
    Request,
    Response,
    Result,
    as_object,
    decode,
    encode,
    encode_message,
    error_answer,
    explain,
    is_object,
    read_object,
    remote_error,
    replace_lone_surrogates,
)

DEEP = 1_000_000
"""More levels of JSON than any Python reads: up to 3.13 it counts them, later it looks at the stack that is left."""


def refused(frame: bytes) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        decode(frame)
    return caught.value


# ------------------------------------------------------------------------------------- requests


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1", 1),
        ("0", 0),
        ("-7", -7),
        ('""', ""),
        ('"1"', "1"),
        ('"null"', "null"),
        ('"\\u00e9\\n"', "é\n"),
        ("9007199254740993", 2**53 + 1),
        ("18446744073709551615", 2**64 - 1),
        ("1180591620717411303424", 2**70),
    ],
)
def test_an_id_keeps_its_type_and_value(written: str, meant: Any) -> None:
    """0 and "" are ids like any other (S25-006, S26-003)."""
    message = decode(f'{{"jsonrpc":"2.0","id":{written},"method":"ping"}}'.encode())
    assert isinstance(message, Request)
    assert type(message.id) is type(meant)
    assert message.id == meant
    assert json.loads(encode(Result(message.id, {})))["id"] == meant
    assert type(json.loads(encode(Result(message.id, {})))["id"]) is type(meant)


@pytest.mark.parametrize("written", ["null", "1.0", "1.5", "1e3", "true", "false", "[]", "[1]", "{}"])
def test_what_is_no_id_is_refused_without_one(written: str) -> None:
    """S25-004: null is no id, nor is a number with a fraction; S25-008: the answer has none to echo."""
    error = refused(f'{{"jsonrpc":"2.0","id":{written},"method":"ping"}}'.encode())
    assert isinstance(error, InvalidRequest)
    assert error.request_id is None


def test_an_integer_of_thousands_of_digits_is_refused_not_converted() -> None:
    error = refused(b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}')
    assert isinstance(error, InvalidRequest)
    assert "id" in error.message


def test_params_stay_raw_and_absent_is_not_empty() -> None:
    message = decode(b'{"jsonrpc":"2.0","id":1,"method":"m","params":  {"a" : [1, 2]}  }')
    assert isinstance(message, Request)
    assert bytes(message.params) == b'{"a" : [1, 2]}'
    absent = decode(b'{"jsonrpc":"2.0","id":1,"method":"m"}')
    assert isinstance(absent, Request)
    assert absent.params is ABSENT


def test_the_order_and_the_spacing_of_members_do_not_matter() -> None:
    text = b' \t\r{ "params":{}, "method" :"m","id":"x" ,\r\n"jsonrpc":"2.0"} '
    assert decode(text) == Request("2.0", "x", "m", decode(text).params)  # type: ignore[union-attr]


def test_unknown_members_are_ignored() -> None:
    message = decode(b'{"jsonrpc":"2.0","id":1,"method":"m","extra":{"deep":[1]}}')
    assert isinstance(message, Request)


def test_the_last_of_two_equal_members_counts() -> None:
    """JSON leaves it open; one answer for one message is what matters."""
    message = decode(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"a","method":"b"}')
    assert isinstance(message, Request)
    assert (message.id, message.method) == (2, "b")


# -------------------------------------------------------------------------------- notifications


def test_a_call_without_an_id_is_a_notification() -> None:
    message = decode(b'{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}')
    assert isinstance(message, Notification)
    assert message.method == "notifications/initialized"
    assert bytes(message.params) == b"{}"
    bare = decode(b'{"jsonrpc":"2.0","method":"m"}')
    assert isinstance(bare, Notification)
    assert bare.params is ABSENT


# -------------------------------------------------------------------------------------- answers


def test_a_result_may_be_any_json_value() -> None:
    for text in (b"{}", b"null", b"[]", b"0", b'""', b"false"):
        message = decode(b'{"jsonrpc":"2.0","id":"a","result":' + text + b"}")
        assert isinstance(message, Response)
        assert message.id == "a"
        assert bytes(message.result) == text


@pytest.mark.parametrize(
    ("written", "request_id"), [('"id":5,', 5), ('"id":null,', None), ("", UNSET)], ids=["id", "null", "absent"]
)
def test_an_error_answer_may_lack_an_id(written: str, request_id: Any) -> None:
    """S25-008: it has none if ours was unreadable to the peer."""
    message = decode(f'{{"jsonrpc":"2.0",{written}"error":{{"code":-32601,"message":"no","data":[1]}}}}'.encode())
    assert isinstance(message, Failure)
    assert message.id is request_id if not isinstance(request_id, int) else message.id == 5
    assert message.error == ErrorObject(-32601, "no", [1])


@pytest.mark.parametrize(
    "error",
    ["null", "1", '"no"', "{}", '{"code":1}', '{"message":"no"}', '{"code":1.0,"message":"no"}',
     '{"code":true,"message":"no"}', '{"code":"1","message":"no"}', '{"code":1,"message":null}'],
)  # fmt: skip
def test_an_error_needs_an_integer_code_and_a_message(error: str) -> None:
    """S25-009, S25-010. What is shaped like an answer is never answered under its id: that id is ours."""
    found = refused(f'{{"jsonrpc":"2.0","id":3,"error":{error}}}'.encode())
    assert isinstance(found, InvalidRequest)
    assert found.request_id is None


@pytest.mark.parametrize(
    "members", ['"id":3,"result":1,"error":{"code":1,"message":""}', '"result":1', '"id":null,"result":1']
)
def test_what_is_half_an_answer_is_refused_without_an_id(members: str) -> None:
    error = refused(f'{{"jsonrpc":"2.0",{members}}}'.encode())
    assert isinstance(error, InvalidRequest)
    assert error.request_id is None


# ----------------------------------------------------------------------------- malformed, misshapen


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b" ",
        b"x",
        b"{",
        b'{"jsonrpc":"2.0","id":1,"method":"m"',
        b'{"jsonrpc":"2.0","id":1,"method":"m"} x',
        b'{"jsonrpc":"2.0","id":1,"method":"m"}{"jsonrpc":"2.0","id":2,"method":"m"}',
        b"{'jsonrpc':'2.0'}",
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":NaN}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":[Infinity]}',
        b'{"jsonrpc":"2.0","id":01,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"a\x00b"}',
        b'{"jsonrpc":"2.0","id":1,"method":"\\ud80"}',
        b'{"jsonrpc":"2.0","id":1,"method":"\\ud800}',
        b'{"jsonrpc":"2.0","id":"\xff","method":"m"}',
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m"}'.decode().encode("utf-16"),
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b"[" * DEEP,
        b'{"a":' * DEEP,
        b"[1,2",
        b"NaN",
    ],
)
def test_what_is_no_json_is_a_parse_error(frame: bytes) -> None:
    error = refused(frame)
    assert isinstance(error, ParseError)
    assert error.code == -32700
    assert error.request_id is None


@pytest.mark.parametrize(
    ("frame", "request_id"),
    [
        (b"1", None),
        (b"null", None),
        (b'"text"', None),
        (b"true", None),
        (b"[]", None),
        (b"{}", None),
        (b'{"jsonrpc":"2.0"}', None),
        (b'{"method":"m"}', None),
        (b'{"id":1,"method":"m"}', 1),
        (b'{"jsonrpc":"1.0","id":1,"method":"m"}', 1),
        (b'{"jsonrpc":2.0,"id":"x","method":"m"}', "x"),
        (b'{"jsonrpc":null,"id":1,"method":"m"}', 1),
        (b'{"jsonrpc":"2.0","id":7,"method":1}', 7),
        (b'{"jsonrpc":"2.0","id":7,"method":null}', 7),
        (b'{"jsonrpc":"2.0","method":["m"]}', None),
        (b'{"jsonrpc":"2.0","id":7}', 7),
        (b'{"jsonrpc":"2.0","id":7,"params":{}}', 7),
    ],
)
def test_json_that_is_no_message_is_an_invalid_request(frame: bytes, request_id: Any) -> None:
    """S25-008: the id is echoed where one can be read."""
    error = refused(frame)
    assert isinstance(error, InvalidRequest)
    assert error.code == -32600
    assert error.request_id == request_id


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"\ud83d", "\ufffd"),
        (r"a\uD83Db", "a\ufffdb"),
        (r"\udc00", "\ufffd"),
        (r"\ude00\ud83d", "\ufffd\ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (r"\ud83d\ude00 \ud83d", "\U0001f600 \ufffd"),
        (r"\\ud83d \ud83d", "\\ud83d \ufffd"),
        (r"\\\ud83d", "\\\ufffd"),
        (r"\ud83d\n\"", '\ufffd\n"'),
        (r"é\ud83d", "é\ufffd"),
    ],
)
def test_half_a_character_is_replaced_and_its_request_has_its_id(written: str, read: str) -> None:
    """JavaScript writes it for text that was cut in the middle; a parse error could not name the request."""
    for frame in (text := f'{{"jsonrpc":"2.0","id":1,"method":"{written}"}}', text.encode(), Raw(text.encode())):
        message = decode(frame)
        assert isinstance(message, Request)
        assert (message.id, message.method) == (1, read)
    inside = decode(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":["{written}"]}}'.encode())
    assert isinstance(inside, Request)
    assert json.loads(bytes(inside.params)) == [read]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("\ud83d", "\ufffd"),
        ("a\ud83db", "a\ufffdb"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ude00", "\U0001f600"),
        ("é\U0001f600\udc00\\ud83d", "é\U0001f600\ufffd\ufffd"),
    ],
)
def test_half_a_character_in_text(written: str, read: str) -> None:
    """A frame that comes as text may hold halves themselves, not only their escapes."""
    message = decode(f'{{"jsonrpc":"2.0","id":7,"method":"m","params":{{"a":"{written}"}}}}')
    assert isinstance(message, Request)
    assert message.id == 7
    assert json.loads(bytes(message.params)) == {"a": read}
    with pytest.raises(ParseError):
        decode("{" + written)


def test_a_long_message_is_not_looked_through_for_it() -> None:
    """So that rubbish costs its sender more than us."""
    began = time.perf_counter()
    for escape in (rb"\ud83d", rb"\n"):
        error = refused(b'{"jsonrpc":"2.0","id":1,"method":"' + escape * 5_000_000 + rb'\ud83d"}')
        assert isinstance(error, ParseError)
    assert time.perf_counter() - began < 5


def test_invalid_utf_8_inside_params_is_found_by_who_reads_them() -> None:
    message = decode(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\xff"}}')
    assert isinstance(message, Request)
    assert message.id == 1


# -------------------------------------------------------------------------------------- batches


def test_a_batch_comes_out_as_its_raw_parts() -> None:
    parts = decode(b'[{"jsonrpc":"2.0","method":"m"}, 1 ,"x",[ ]]')
    assert isinstance(parts, Batch)
    assert [bytes(part) for part in parts] == [b'{"jsonrpc":"2.0","method":"m"}', b"1", b'"x"', b"[ ]"]
    assert isinstance(decode(parts[0]), Notification)


def test_a_batch_has_at_most_so_many_parts() -> None:
    """Rubbish costs its sender two bytes a part, and us a refusal of each: so there is a limit, and it comes first."""
    message = b'{"jsonrpc":"2.0","method":"x"}'

    def batch(part: bytes, size: int) -> bytes:
        return b"[" + b",".join([part] * size) + b"]"

    assert len(decode(batch(b"1", MOST_PARTS))) == MOST_PARTS  # type: ignore[arg-type]
    for part in (b"1", message):
        assert str(MOST_PARTS) in refused(batch(part, MOST_PARTS + 1)).message
    # What is large has to hold messages, of which there may be as many.
    large = b'{"jsonrpc":"2.0","method":"x","params":{"text":"%b"}}' % (b"x" * 2000)
    assert len(decode(batch(large, MOST_PARTS))) == MOST_PARTS  # type: ignore[arg-type]
    assert str(MOST_PARTS) in refused(batch(message, 100_000)).message
    assert "Not a JSON-RPC message" in refused(batch(b"1", 1_000_000)).message


def test_an_empty_batch_is_an_invalid_request() -> None:
    assert refused(b"[]").message == "Empty batch"


# ------------------------------------------------------------------------------------- encoding


def test_messages_are_written_in_one_line_without_absent_members() -> None:
    assert encode(Result(1, {"a": "x\ny"})) == b'{"jsonrpc":"2.0","id":1,"result":{"a":"x\\ny"}}'
    assert encode(Result("", Raw(b"{ }"))) == b'{"jsonrpc":"2.0","id":"","result":{ }}'
    failure = Failure(ErrorObject(-32600, "no"))
    assert json.loads(encode(failure)) == {"jsonrpc": "2.0", "error": {"code": -32600, "message": "no"}}
    assert json.loads(encode(Failure(ErrorObject(-1, "", {"a": None}), None))) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -1, "message": "", "data": {"a": None}},
    }


def test_a_call_has_an_id_or_is_a_notification() -> None:
    assert json.loads(encode_message("m")) == {"jsonrpc": "2.0", "method": "m"}
    assert json.loads(encode_message("m", {"a": 1}, 0)) == {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "m",
        "params": {"a": 1},
    }
    assert json.loads(encode_message("m", request_id="")) == {"jsonrpc": "2.0", "id": "", "method": "m"}


# ------------------------------------------------------------------------------------ explaining


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (b"1", "expected object, got int"),
        (b'{"jsonrpc":"2.0","id":1,"method":2}', "method: expected str, got int"),
        (b'{"jsonrpc":"2.0","id":1}', "object missing required field method"),
    ],
)
def test_errors_name_the_field(frame: bytes, text: str) -> None:
    from msgspec.json import Decoder

    with pytest.raises(Exception) as caught:
        Decoder(Request).decode(frame)
    assert explain(caught.value) == text


def test_depth_is_explained_in_words() -> None:
    assert explain(RecursionError("maximum recursion depth exceeded")) == "nested too deep"


# -------------------------------------------------------------------------------------- anything

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.binary())
@example(b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}')
def test_any_bytes_are_a_message_or_a_protocol_error(frame: bytes) -> None:
    try:
        message = decode(frame)
    except ProtocolError as error:
        assert error.code in (-32700, -32600)  # noqa: PT017  # either outcome is right
        assert encode(Failure(ErrorObject(error.code, error.message), error.request_id))  # noqa: PT017
    else:
        assert isinstance(message, (Request, Notification, Response, Failure, Batch))


@given(json_values)
@example({"jsonrpc": "2.0", "id": 1, "method": "\ud800"})
def test_any_json_value_is_a_message_or_an_invalid_request(value: Any) -> None:
    frame = json.dumps(value).encode("utf-8", "replace")
    try:
        decode(frame)
    except InvalidRequest:
        pass
    except ParseError as error:
        # What Python writes and msgspec does not take.
        assert "range" in error.message  # noqa: PT017


@given(st.one_of(st.integers(-(2**63), 2**64 - 1), st.text()), st.text(), json_values)
def test_what_call_writes_decode_reads(request_id: Any, method: str, params: Any) -> None:
    try:
        frame = encode_message(method, params, request_id)
    except UnicodeEncodeError:
        return
    message = decode(frame)
    assert isinstance(message, Request)
    assert (message.id, message.method) == (request_id, method)
    assert (message.params is ABSENT) == (params is None)


@given(st.text(st.characters(codec=None, exclude_categories=[])))
@example("\ud83d\ude00")
@example("\ufeffa\ud800")
def test_what_is_mended_can_be_written_and_the_rest_of_it_stays(text: str) -> None:
    whole = replace_lone_surrogates(ErrorObject(1, text, {text: [text]}))
    assert json.loads(encode(whole)) == {"code": 1, "message": whole.message, "data": {whole.message: [whole.message]}}
    try:
        text.encode()
    except UnicodeEncodeError:
        assert len(whole.message) <= len(text)
    else:
        assert whole.message == text


def test_an_error_is_the_same_on_both_sides() -> None:
    """What has no data has no such member, and is an error without data where it arrives."""
    told = decode(encode(error_answer(InvalidParams("name: missing"), 7)))
    assert isinstance(told, Failure)
    error = remote_error(told)
    assert (error.code, error.message, error.data) == (-32602, "name: missing", None)
    told = decode(encode(error_answer(RemoteError(1, "no", {"why": [None]}), "a", code=2)))
    assert isinstance(told, Failure)
    assert (remote_error(told).code, remote_error(told).data, told.id) == (2, {"why": [None]}, "a")


@pytest.mark.parametrize("value", [{}, {"a": 1}, Raw(b' \n{"a": 1}'), MappingProxyType({"a": 1}), ErrorObject(1, "x")])
def test_what_is_an_object_is_written_as_one(value: Any) -> None:
    assert is_object(as_object(value, "it"))


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ([1], "it must be a JSON object"),
        (Raw(b"[]"), "it must be a JSON object"),
        (Raw(b""), "it must be a JSON object"),
        (None, "it must be a JSON object"),
        ({"a": object()}, "it cannot be written as JSON"),
        ({"a": "\ud800"}, "it cannot be written as JSON"),
    ],
)
def test_what_is_none_is_refused_before_it_is_sent(value: Any, complaint: str) -> None:
    with pytest.raises(LocalProtocolError, match=complaint):
        as_object(value, "it")


@pytest.mark.parametrize(("raw", "value"), [(b"", {}), (b"null", {}), (Raw(b'{"a":[1]}'), {"a": [1]})])
def test_an_object_of_a_peer_is_read(raw: bytes | Raw, value: dict[str, Any]) -> None:
    assert read_object(raw, "arguments") == value


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (b"[]", "arguments must be a JSON object"),
        (b"5", "arguments must be a JSON object"),
        (b"{", "arguments cannot be read as JSON"),
        (b"[" * 100_000, "arguments cannot be read as JSON"),
        (b'{"a": "\xff"}', "arguments cannot be read as JSON"),
    ],
)
def test_what_else_a_peer_sends_is_refused(raw: bytes, complaint: str) -> None:
    with pytest.raises(InvalidParams, match=complaint):
        read_object(raw, "arguments")
