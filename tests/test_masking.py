"""Secrets stay out of traces, where a name tells that they are some."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpd.protocol.printable import mask_command, mask_json, mask_text
from mcpd.transports.recorder import Line, LineSplitter, Recording, encode_record, to_record


def recorded(message: bytes, **how: Any) -> Any:
    record = to_record("host", Line(message, len(message)), 0.0, Recording(**how))
    return json.loads(encode_record(record))


@pytest.mark.parametrize(
    ("said", "masked"),
    [
        ({"Authorization": "Bearer abcdefghij"}, {"Authorization": "<masked: 17 characters>"}),
        ({"headers": [{"x-api-key": "k"}]}, {"headers": [{"x-api-key": "<masked: 1 characters>"}]}),
        ({"refresh_token": "abc", "n": 1}, {"refresh_token": "<masked: 3 characters>", "n": 1}),
        ({"text": '{"access_token":"abc"}'}, {"text": '{"access_token":"<masked: 3 characters>"}'}),
        ({"text": "curl -H 'Authorization: Bearer abcdefghij' x"},
         {"text": "curl -H 'Authorization: Bearer <masked: 10 characters>' x"}),
        ({"text": "password = hunter22;"}, {"text": "password = <masked: 8 characters>;"}),
        ({"text": "GITHUB_TOKEN=ghp_1234"}, {"text": "GITHUB_TOKEN=<masked: 8 characters>"}),
        ({"DATABASE_URL": "postgres://ada:h@nter22@db.example.com:5432/beds"},
         {"DATABASE_URL": "postgres://ada:<masked: 8 characters>@db.example.com:5432/beds"}),
        ({"text": "redis://:p1@a/0, amqp://u:p/2@b"},
         {"text": "redis://:<masked: 2 characters>@a/0, amqp://u:<masked: 3 characters>@b"}),
        ({"text": r'{"url":"http:\/\/u:pw@h"}'}, {"text": '{"url":"http://u:<masked: 2 characters>@h"}'}),
    ],
)  # fmt: skip
def test_what_is_masked(said: Any, masked: Any) -> None:
    assert json.loads(mask_json(json.dumps(said).encode())) == masked


@pytest.mark.parametrize(
    "said",
    [
        {"_meta": {"progressToken": "abc"}, "method": "tools/call"},
        {"properties": {"token": {"type": "string"}, "password": {"title": "the password"}}, "required": []},
        {"urls": "http://127.0.0.1:8080/@scope/x ssh://git@example.com:22/a http://h:8080?mail=a@b http://[::1]:80/@"},
        {"cursor": "secret-looking", "text": "a token is needed, and a secret", "big": 12345678901234567890},
    ],
)  # fmt: skip
def test_what_is_none(said: Any) -> None:
    text = json.dumps(said, indent=1).encode()
    assert mask_json(text) == text


def test_a_name_that_is_written_with_escapes() -> None:
    assert recorded(b'{"pass\\u0077ord":"abc"}')["message"] == {"password": "<masked: 3 characters>"}


def test_unless_they_are_asked_for() -> None:
    assert recorded(b'{"password":"abc"}', shows_secrets=True)["message"] == {"password": "abc"}
    assert recorded(b"password=abcd", shows_secrets=True)["text"] == "password=abcd"


def test_a_message_that_is_cut_is_masked_first() -> None:
    record = recorded(b'{"pass\\u0077ord":"abc","long":"' + b"x" * 200 + b'"}', max_bytes=100)
    assert record["cut"]
    assert "abc" not in record["text"]


def test_command_lines() -> None:
    words = ["server", "--token", "abc", "--api-key=abcdef", "-H", "Authorization: Bearer abcdefghij", "--secret", "-v"]
    assert mask_command(words) == [
        "server", "--token", "<masked: 3 characters>", "--api-key=<masked: 6 characters>", "-H",
        "Authorization: Bearer <masked: 10 characters>", "--secret", "-v",
    ]  # fmt: skip
    assert mask_text("nothing of interest") == "nothing of interest"


def test_memory_is_bounded_however_long_a_line_is() -> None:
    lines = LineSplitter(1000)
    for _ in range(20):
        assert lines.feed(b"x" * 1024 * 1024) == []
    (line,) = lines.feed(b'"id":7}\n')
    assert line.size == 20 * 1024 * 1024 + 7
    assert len(line.data) == 16 * 1024 * 1024
    assert line.tail.endswith(b'x"id":7}')
    assert len(line.tail) == 256
