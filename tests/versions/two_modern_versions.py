"""Run by `test_another_revision.py` in a copy of the repository that has a revision more, 2027-01-01.

That revision has no `completion/complete`, and a `com.example/count`; all else in it is as in 2026-07-28. So
the transcripts of 2026-07-28 are played in both: as they are, and with the newer version's name in their place.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.wires import Wire, envelope
from test_transcripts import EXCHANGES, NOT_OVER_HTTP, TRANSPORTS, player, websocket_url

from mcpd.protocol.versions import table

__all__ = ["websocket_url"]

OLDER, NEWER = "2026-07-28", "2027-01-01"
MODERN = [exchange for exchange in EXCHANGES if exchange.version == OLDER]
each_transport = pytest.mark.parametrize("transport", TRANSPORTS)


def speaks_of_completion(exchange: Any) -> bool:
    return any("completion/complete" in line.text for line in exchange.lines)


class InVersion:
    """A wire on which `version` stands for 2026-07-28, in both directions."""

    def __init__(self, wire: Wire, version: str) -> None:
        self._wire = wire
        self._version = version

    def send(self, message: bytes) -> None:
        self._wire.send(message.replace(OLDER.encode(), self._version.encode()))

    async def receive(self) -> Any:
        text = json.dumps(await self._wire.receive())
        # Both versions are listed, the newer one first.
        text = text.replace(f'"{NEWER}", "{OLDER}"', f'"{OLDER}"')
        return json.loads(text.replace(self._version, OLDER))


def test_it_is_the_copy_that_is_tested() -> None:
    assert table.MODERN == (OLDER, NEWER)
    assert len([exchange for exchange in MODERN if not speaks_of_completion(exchange)]) > 30


@each_transport
@pytest.mark.parametrize("version", [OLDER, NEWER])
@pytest.mark.parametrize("exchange", MODERN, ids=repr)
async def test_transcript(exchange: Any, version: str, transport: str, request: pytest.FixtureRequest) -> None:
    if version == NEWER and speaks_of_completion(exchange):
        return  # this revision has none: see below
    if transport == "http" and exchange.name in NOT_OVER_HTTP:
        return
    async with TRANSPORTS[transport](request) as wire:
        await player.play(exchange, InVersion(wire, version))


@each_transport
async def test_each_request_has_its_own_version(transport: str, request: pytest.FixtureRequest) -> None:
    """D13: an era is a connection's, a version a call's."""
    wanted = {
        "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
        "argument": {"name": "arg1", "value": ""},
    }
    async with TRANSPORTS[transport](request) as wire:

        async def answer(version: str, method: str, params: dict[str, Any], request_id: str) -> Any:
            params = {**params, "_meta": envelope(version)}
            wire.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
            return await wire.answer(request_id)

        for turn, version in enumerate((NEWER, OLDER, OLDER, NEWER)):
            listed = await answer(version, "tools/list", {}, f"list-{turn}")
            assert len(listed["result"]["tools"]) > 10
            completed = await answer(version, "completion/complete", wanted, f"complete-{turn}")
            if version == OLDER:
                assert "completion" in completed["result"]
            else:
                assert completed["error"]["code"] == -32601
        refused = await answer("2028-01-01", "tools/list", {}, "refused")
        assert refused["error"]["code"] == -32022
        assert refused["error"]["data"]["supported"][:2] == [NEWER, OLDER]


@each_transport
async def test_the_method_that_it_brings(transport: str, request: pytest.FixtureRequest) -> None:
    """Served in its own version, and unknown in the one before."""
    async with TRANSPORTS[transport](request) as wire:
        for version in (NEWER, OLDER):
            params = {"text": "three words long", "_meta": envelope(version)}
            wire.send({"jsonrpc": "2.0", "id": version, "method": "com.example/count", "params": params})
            answer = await wire.answer(version)
            if version == NEWER:
                assert answer["result"]["count"] == 3
                assert answer["result"]["resultType"] == "complete"
            else:
                assert answer["error"]["code"] == -32601
