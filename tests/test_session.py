"""The session without any I/O: what the wire cannot show, such as what is in flight and who may be asked.

What it does with messages is tested on the wire: test_eras, test_batch, test_dispatcher, test_anything.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.wire_schema import VERSIONS
from support.wires import LEGACY, META, MODERN, each_version, envelope, initialize

import mcpd
from mcpd.errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    LocalProtocolError,
    MethodNotFound,
    ProtocolError,
    ResourceNotFound,
)
from mcpd.protocol.envelope import (
    NAMES,
    PROGRESS_TOKEN,
    SERVER_INFO,
    SUBSCRIPTION_ID,
    ClientIdentity,
    Envelope,
    with_progress,
)
from mcpd.protocol.jsonrpc import Notification, Request, decode, encode
from mcpd.protocol.session import Call, Opening, Phase, Session
from mcpd.protocol.types.base import (
    CancelledParams,
    ClientCapabilities,
    EmptyResult,
    Implementation,
    ProgressParams,
    SamplingCapability,
)
from mcpd.protocol.versions import table


def request(method: str, request_id: Any = 1, params: Any = None) -> Request:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    found = decode(json.dumps(message if params is None else {**message, "params": params}).encode())
    assert isinstance(found, Request)
    return found


def opened(version: str, **how: Any) -> Session:
    """A session in that version, with nothing in flight."""
    session = Session(**how)
    first = request("tools/list", 0, {"_meta": envelope()})
    if version != MODERN:
        found = decode(json.dumps(initialize(version)).encode())
        assert isinstance(found, Request)
        first = found
    session.respond(session.receive_request(first), EmptyResult())
    return session


def ask(session: Session, method: str = "tools/list", request_id: Any = 1) -> Call:
    is_modern = session.version is not None and session.version.is_modern
    return session.receive_request(request(method, request_id, {"_meta": envelope()} if is_modern else None))


# -------------------------------------------------------------------------------------- phases

MESSAGES: dict[str, dict[str, Any]] = {
    "initialize": initialize("2025-06-18"),
    "initialized": {"jsonrpc": "2.0", "method": "notifications/initialized"},
    "discover": {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": envelope()}},
    "modern": {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": envelope()}},
    "bare": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    "ping": {"jsonrpc": "2.0", "id": 1, "method": "ping"},
    "unknown": {"jsonrpc": "2.0", "id": 1, "method": "no/such"},
}
NEXT_PHASES: dict[Phase, dict[str, Phase]] = {
    "new": {"initialize": "initializing", "modern": "modern"},
    "initializing": {"initialized": "initialized"},
    "initialized": {},
    "modern": {},
}
"""What leads to another phase; all else leaves the connection in the one that it is in."""

WAYS: dict[Phase, tuple[str, ...]] = {
    "new": (),
    "initializing": ("initialize",),
    "initialized": ("initialize", "initialized"),
    "modern": ("modern",),
}


def send(session: Session, name: str) -> None:
    message = decode(json.dumps(MESSAGES[name]).encode())
    if isinstance(message, Request):
        try:
            session.respond(session.receive_request(message), EmptyResult())
        except ProtocolError:
            pass
    else:
        assert isinstance(message, Notification)
        session.receive_notification(message)


@pytest.mark.parametrize("phase", WAYS)
@pytest.mark.parametrize("name", MESSAGES)
def test_a_phase_ends_by_what_the_table_says_and_nothing_else(phase: Phase, name: str) -> None:
    """S25-020, S25-024: a connection fixes an era once; no request that is refused changes anything."""
    session = Session()
    for step in WAYS[phase]:
        send(session, step)
    assert session.phase == phase
    send(session, name)
    assert session.phase == NEXT_PHASES[phase].get(name, phase)
    assert (session.version is None) == (session.phase == "new")
    assert session.is_initialized == (session.phase == "initialized")


@each_version
def test_a_connection_may_be_opened_in_a_version(version: str) -> None:
    session = Session(opening=Opening(version=table.get(version)))
    assert session.phase == ("modern" if version == MODERN else "initialized")


@pytest.mark.parametrize("phase", ["initializing", "initialized"])
def test_a_session_of_another_process_is_in_the_phase_that_it_was_left_in(phase: Phase) -> None:
    client = ClientIdentity(info=Implementation(name="c", version="1"))
    for name in MESSAGES:
        session = Session(opening=Opening(version=table.get("2025-11-25")))
        session.restore(client, is_initialized=phase == "initialized", log_level="error")
        assert session.phase == phase
        assert (session.client, session.log_level) == (client, "error")
        send(session, name)
        assert session.phase == NEXT_PHASES[phase].get(name, phase)


# ----------------------------------------------------------------------------------- in flight


@each_version
def test_a_call_is_open_until_it_is_answered(version: str) -> None:
    session = opened(version)
    call = ask(session)
    assert call.is_open
    assert list(session.in_flight.by_id) == [1]
    assert session.respond(call, EmptyResult()) is not None
    assert not call.is_open
    assert not session.in_flight
    assert session.respond(call, EmptyResult()) is None
    assert session.fail(call, InternalError()) is None


@each_version
def test_what_is_refused_was_never_open(version: str) -> None:
    session = opened(version)
    for wrong in (request("no/such", 1, {"_meta": envelope()} if version == MODERN else None),
                  request("tools/list", 1, {"cursor": 5}), request("tools/list", 1, {"_meta": 5})):  # fmt: skip
        with pytest.raises((MethodNotFound, InvalidParams)):
            session.receive_request(wrong)
    assert not session.in_flight


def test_an_id_in_use_keeps_its_first_call() -> None:
    session = opened("2025-06-18")
    first = ask(session)
    with pytest.raises(InvalidRequest):
        ask(session)
    assert session.in_flight.by_id == {1: first}


def test_ids_of_two_types_are_two() -> None:
    session = opened("2025-06-18")
    calls = {request_id: ask(session, request_id=request_id) for request_id in (1, "1", 0, "", "0")}
    assert session.in_flight.by_id == calls


def test_no_more_than_so_many_at_once() -> None:
    session = opened("2025-06-18", max_in_flight=2)
    calls = [ask(session, request_id=number) for number in range(2)]
    with pytest.raises(InvalidRequest, match="2"):
        ask(session, request_id=2)
    session.respond(calls[0], EmptyResult())
    ask(session, request_id=2)


@each_version
def test_a_cancelled_call_cannot_be_answered_and_its_id_is_free(version: str) -> None:
    session = opened(version)
    call = ask(session)
    assert session.cancel(1) is call
    assert session.cancel(1) is None
    assert session.cancel(None) is None
    again = ask(session)
    assert session.respond(call, EmptyResult()) is None
    assert session.fail(call, InternalError()) is None
    assert session.in_flight.by_id == {1: again}


def test_initialize_is_not_cancelled() -> None:
    session = Session()
    first = decode(json.dumps(initialize("2025-06-18", 1)).encode())
    assert isinstance(first, Request)
    call = session.receive_request(first)
    assert session.cancel(1) is None
    assert call.is_open


def test_an_answer_that_cannot_be_written_leaves_the_call_open_for_another() -> None:
    session = opened("2025-06-18")
    call = ask(session)
    with pytest.raises(TypeError):
        session.respond(call, EmptyResult(meta={"x": object()}))
    with pytest.raises(TypeError):
        session.fail(call, InvalidParams("x", object()))
    assert call.is_open
    assert session.fail(call, InternalError()) is not None
    assert not session.in_flight


# --------------------------------------------------------------------------------- who is there


def test_before_anything_nothing_is_known() -> None:
    session = Session()
    assert session.version is None
    assert session.client.info is None
    assert session.client.capabilities.extensions is None
    assert session.notify("notifications/message", None) is None
    with pytest.raises(LocalProtocolError):
        session.ask("ping", None, 1)


def test_a_legacy_client_is_remembered() -> None:
    session = Session()
    message = initialize("2025-06-18", 1, {"roots": {"listChanged": True}, "extensions": {"x/y": {}}})
    first = decode(json.dumps(message).encode())
    assert isinstance(first, Request)
    session.respond(session.receive_request(first), EmptyResult())
    call = ask(session)
    assert call.client is session.client
    assert call.client.info is not None
    assert call.client.info.name == "wire"
    assert call.client.capabilities.roots is not None
    assert call.client.capabilities.roots.list_changed
    assert call.log_level == "info"


def test_a_modern_client_is_read_from_each_request_and_forgotten() -> None:
    """S26-018, S26-036."""
    session = opened(MODERN)
    params = {"_meta": {**envelope(capabilities={"sampling": {}}), f"{META}logLevel": "error"}}
    first = session.receive_request(request("tools/list", 1, params))
    second = session.receive_request(
        request("tools/list", 2, {"_meta": {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {}}})
    )
    assert first.client.capabilities.sampling is not None
    assert (first.client.info is not None, first.log_level) == (True, "error")
    assert second.client.capabilities.sampling is None
    assert (second.client.info, second.log_level) == (None, None)


def test_what_a_modern_client_says_is_read_once_for_a_call() -> None:
    session = opened(MODERN)
    params = {"_meta": envelope(capabilities={"sampling": {}})}
    first, second = (session.receive_request(request("tools/list", number, params)) for number in (1, 2))
    assert first.client is first.client
    assert first.client.capabilities is first.client.capabilities
    assert first.client.capabilities is not second.client.capabilities


def test_capabilities_that_cannot_be_read_are_told_when_they_are_needed() -> None:
    session = opened(MODERN)
    call = session.receive_request(
        request("tools/list", 1, {"_meta": {**envelope(), f"{META}clientCapabilities": {"extensions": 5}}})
    )
    with pytest.raises(InvalidParams, match="clientCapabilities"):
        _ = call.client.capabilities


def test_who_cannot_be_read_is_nobody() -> None:
    session = opened(MODERN)
    params = {"_meta": {**envelope(), f"{META}clientInfo": {"name": 5}}}
    assert session.receive_request(request("tools/list", 1, params)).client.info is None


def test_a_server_reads_the_envelope_that_a_client_writes() -> None:
    written = Envelope(
        MODERN, Implementation(name="name", version="1"), ClientCapabilities(sampling=SamplingCapability())
    )
    written.set_log_level("error")
    params = json.loads(encode(with_progress(written.wrap({"_meta": {"com.example/own": 1}}), 5)))
    call = opened(MODERN).receive_request(request("tools/list", 1, params))
    assert call.client.capabilities.sampling is not None
    assert call.client.info == Implementation(name="name", version="1")
    assert call.meta is not None
    assert (call.version.name, call.log_level, call.meta.progress_token) == (MODERN, "error", 5)
    assert params["_meta"].keys() == {*NAMES.values(), "com.example/own"}


def test_the_members_of_the_envelope_are_named_and_read_in_one_module() -> None:
    """A change of its rules concerns `envelope.py`, and a new member also the struct that decodes it."""
    own = [name.removeprefix(META) for name in (*NAMES.values(), SERVER_INFO, SUBSCRIPTION_ID)]
    fields = "|".join(NAMES.keys() - {"progress_token"})
    named = re.compile(rf"(META}}|{META})({'|'.join(own)})\b|\"{PROGRESS_TOKEN}\"|\bmeta\.({fields})\b")
    package = Path(mcpd.__file__).parent
    places = {
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if named.search(file.read_text(encoding="utf-8")) and "compat" not in file.parts
    }
    assert places == {"protocol/envelope.py", "protocol/types/base.py"}


# ------------------------------------------------------------------------------- speaking first


@pytest.mark.parametrize("version", VERSIONS)
def test_notifications_are_those_of_the_version(version: str) -> None:
    session = opened(version)
    progress = ProgressParams(progress_token=1, progress=1)
    call = ask(session)
    assert session.notify("notifications/progress", progress, call) is not None
    assert session.notify("no/such", progress) is None
    cancelled = session.notify("notifications/cancelled", CancelledParams(request_id=1))
    assert (cancelled is None) == (version == "2024-10-07")
    session.respond(call, EmptyResult())
    assert session.notify("notifications/progress", progress, call) is None


@pytest.mark.parametrize("version", LEGACY)
def test_a_request_of_ours_has_the_id_that_it_is_given(version: str) -> None:
    assert json.loads(opened(version).ask("ping", None, 7)) == {"jsonrpc": "2.0", "id": 7, "method": "ping"}


def test_a_modern_client_is_never_asked() -> None:
    """S26-042, S26-048."""
    session = opened(MODERN)
    for method in ("ping", "sampling/createMessage", "roots/list", "elicitation/create"):
        with pytest.raises(LocalProtocolError):
            session.ask(method, None, 1)


# --------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_without_an_id_is_written_as_the_version_wants_it(version: str) -> None:
    """protocol-versions 3: null up to 2025-06-18, absent since."""
    session = opened(version)
    written = json.loads(session.refuse(InvalidRequest("no")))
    assert written["error"] == {"code": -32600, "message": "no"}
    assert written.get("id", "absent") == ("absent" if version in (LEGACY[-1], MODERN) else None)
    assert json.loads(session.refuse(InvalidRequest("no"), 0))["id"] == 0
    assert json.loads(session.refuse(InvalidRequest("no"), ""))["id"] == ""


@pytest.mark.parametrize("version", VERSIONS)
def test_codes_are_those_of_the_version(version: str) -> None:
    session = opened(version)
    frame = session.fail(ask(session), ResourceNotFound("x:y"))
    assert frame is not None
    code = json.loads(frame)["error"]["code"]
    assert code == (-32602 if version == MODERN else -32002)
