"""The trace: bounded, in order, its windows found quickly however much there is."""

from __future__ import annotations

import json

import pytest

from mcpd.apps.preview.messages import TraceFilter, TraceGet
from mcpd.apps.preview.trace import MAX_BYTES, MAX_ENTRIES, Trace, _FilteredView


@pytest.mark.medium
async def test_a_long_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """60,000 messages: the last 50,000 are kept, and a filter tests each of them once for all windows."""
    trace = Trace()
    for number in range(30_000):
        trace.add(
            "host", "server", b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"n":%d}}' % (number, number)
        )
        trace.add(
            "server", "host", b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"n":"Wet %d"}}' % (number, number)
        )

    told = trace.get(TraceGet(start=0, count=100, brief=True))
    assert (told["total"], told["first"], len(told["entries"])) == (60_000, 10_000, 100)
    assert told["entries"][0]["n"] == 60_000 - MAX_ENTRIES
    last = trace.get(TraceGet(start=59_990, count=100))
    assert [entry["n"] for entry in last["entries"]] == list(range(59_990, 60_000))
    assert last["entries"][-1]["method"] == "tools/call"
    assert last["entries"][-1]["kind"] == "response"
    assert last["entries"][-1]["message"] is not None
    assert trace.get(TraceGet(whole=5))["entries"] == []

    wanted = TraceFilter(text="WET 299", kinds=["response"])
    found = trace.get(TraceGet(start=0, count=1000, filter=wanted))
    assert found["total"] == 100  # 29900 to 29999; 299 and 2990 are forgotten
    trace.add("server", "host", b'{"jsonrpc":"2.0","id":1,"result":{"n":"wet 2999"}}')
    assert trace.get(TraceGet(start=0, count=1, filter=wanted))["total"] == 101

    tested: list[int] = []
    passes = _FilteredView.passes
    monkeypatch.setattr(_FilteredView, "passes", lambda view, entry: tested.append(entry.n) or passes(view, entry))
    for _ in range(20):
        trace.get(TraceGet(start=40_000, count=200, filter=None, brief=True))
        trace.get(TraceGet(start=0, count=200, filter=wanted, brief=True))
    assert tested == []
    trace.get(TraceGet(start=0, count=200, filter=TraceFilter(text="Wet"), brief=True))
    assert len(tested) == MAX_ENTRIES
    trace.close()


async def test_large_messages() -> None:
    """Those that are large are cut for a list, given whole one by one, and push out what is old."""
    trace = Trace()
    trace.add("view:view-1", "host", b"no message")
    trace.add_note("server", "host", "the connection has ended")
    large = json.dumps({"jsonrpc": "2.0", "method": "x", "params": {"text": "a" * 1_000_000}}).encode()
    trace.add("host", "view:view-1", large)
    told = trace.get(TraceGet(count=3))["entries"]
    assert (told[0]["kind"], told[0]["text"]) == ("invalid", "no message")
    assert told[1]["note"] == "the connection has ended"
    assert told[2]["cut"] is True
    assert len(told[2]["text"]) == 64 * 1024
    assert "message" not in told[2]
    assert bytes(trace.get(TraceGet(whole=2))["entries"][0]["message"]) == large
    brief = trace.get(TraceGet(start=2, count=1, brief=True))["entries"][0]
    assert brief["preview"].startswith('{"text"')
    assert len(brief["preview"]) == 160

    for _ in range(80):
        trace.add("host", "view:view-1", large)
    kept = trace.get(TraceGet(start=0, count=1000, brief=True))["entries"]
    assert sum(entry["bytes"] for entry in kept) <= MAX_BYTES
    assert kept[-1]["n"] == trace.total - 1
    trace.close()


async def test_what_is_saved_has_no_secrets() -> None:
    """A file is given away: what is a token, password or key by its name is not in it; on the page everything is."""
    trace = Trace()
    large = {"text": "a" * 100_000, "apiKey": "hidden-1"}
    trace.add("host", "server", json.dumps({"jsonrpc": "2.0", "method": "x", "params": large}).encode())
    trace.add(
        "server", "host", b'{"jsonrpc":"2.0","method":"y","params":{"headers":{"Authorization":"Bearer hidden-2"}}}'
    )
    trace.add("server", "host", b"password=hidden-3, and no JSON")
    told = trace.get(TraceGet(masked=True))["entries"] + trace.get(TraceGet(whole=0, masked=True))["entries"]
    assert "hidden" not in repr(told)
    assert len(told) == 4
    assert b"hidden-2" in bytes(trace.get(TraceGet(whole=1))["entries"][0]["message"])
    trace.close()
