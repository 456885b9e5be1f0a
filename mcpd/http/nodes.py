"""What the nodes of a service say to each other about its sessions: messages that belong to another node's stream,
answers to another node's question, and where the newest GET stream of a session is. Never a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcpd.backplane.base import BackplaneAway
from mcpd.backplane.node import Node
from mcpd.errors import ProtocolError
from mcpd.http.core import Core
from mcpd.http.following import Following
from mcpd.http.http_session import CannotRestore, HttpSession
from mcpd.http.sealed_sessions import SealedSessions
from mcpd.http.sharing import Sharing
from mcpd.protocol.jsonrpc import Batch, Failure, Message, Notification, Request, Response, Result, call, decode, encode

_SAID_BY_ALL = frozenset(
    (
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    )
)
"""Each node hears of these by itself: where the newest GET stream is, they are said."""


class Nodes:
    """The others, as the sessions of one application have to do with them; `by_uid` are those that are known here."""

    def __init__(self, core: Core, sharing: Sharing, sealed: SealedSessions, by_uid: Mapping[str, HttpSession]) -> None:
        self._node: Node = sharing.node
        self._changes = sharing.changes
        self._sealed = sealed
        self._by_uid = by_uid
        self.following = Following(core, self._node, by_uid)
        for kind, take in (
            ("deliver", self._on_deliver),
            ("answer", self._on_message),
            ("cancel", self._on_message),
        ):
            self._node.on(kind, take)
        self._node.on_gap(self._gap)
        sealed.listens_at = self._listens_at

    def join(self, session: HttpSession) -> None:
        """A session may be served by several nodes: what it numbers is numbered as this node's."""
        session.nodes = self
        session.request_prefix = f"{self._node.id}."
        session.streams.node = self._node.id
        session.streams.on_lost = self.following.keep_log(session)

    def _gap(self) -> None:
        """Something may have been missed: that a session has ended, what was set, or where it listens."""
        for session in list(self._by_uid.values()):
            session.is_doubted = True
            if session.listening:
                self.listen(session)

    # -- the newest GET stream ---------------------------------------------------------------

    def listen(self, session: HttpSession) -> None:
        """It is here now."""
        session.elsewhere = ""
        self._node.post(self._listen(session))

    async def _listen(self, session: HttpSession) -> None:
        try:
            before = await self._sealed.listen(session)
        except CannotRestore:
            return  # after the gap it is tried again
        if before and before != self._node.id and not await self._node.tell(before, "alive"):
            # What that node held is lost, and what it said may be: better once too often.
            subscriptions = session.connection.subscriptions
            for kind in self._changes.moved:
                subscriptions.changed(kind)
            subscriptions.missed()

    def _listens_at(self, session: HttpSession, where: str) -> None:
        assert session.sealed is not None
        session.elsewhere = "" if where == self._node.id else where
        held = session.take_held() if session.elsewhere else []
        if held:
            self._node.post(self._node.tell(where, "deliver", session.sealed.uid, held))

    def send(self, session: HttpSession, frame: bytes, method: str | None) -> None:
        """Say something on the newest GET stream, which is another node's."""
        if method not in _SAID_BY_ALL:
            self._node.post(self._deliver(session, frame))

    async def _deliver(self, session: HttpSession, frame: bytes) -> None:
        assert session.sealed is not None
        where = session.elsewhere
        if not where or not await self._node.tell(where, "deliver", session.sealed.uid, [frame]):
            session.elsewhere = "" if session.elsewhere == where else session.elsewhere
            session.deliver(frame)

    def _on_deliver(self, _: str, body: list[Any]) -> None:
        session = self._by_uid.get(body[0])
        if session is not None:
            session.hand_over(body[1])

    # -- answers, and requests that were given up --------------------------------------------

    async def takes(self, session: HttpSession, message: Message) -> int | None:
        """The HTTP status of a message that is another node's to take; None if it is not. Raises BackplaneAway.

        An answer whose node is gone, or never was, gets 400; one whose node does not hear at the time is to be sent
        again. A cancellation is told to all who may work on it.
        """
        assert session.sealed is not None
        if isinstance(message, Request):
            return None
        if isinstance(message, Notification):
            if message.method == "notifications/cancelled":
                # What is meant may be worked on here, or anywhere.
                frame = call(message.method, message.params)
                self._node.post(self._node.tell_all("cancel", session.sealed.uid, frame))
            return None

        node, dot, _ = message.id.partition(".") if isinstance(message.id, str) else ("", "", "")
        if not dot or node == self._node.id:
            return None
        frame = encode(Result(message.id, message.result)) if isinstance(message, Response) else encode(message)
        return 202 if await self._node.tell_surely(node, "answer", session.sealed.uid, frame) else 400

    def _on_message(self, _: str, body: list[Any]) -> None:
        session = self._by_uid.get(body[0])
        if session is None:
            return
        try:
            message = decode(body[1])
        except ProtocolError:
            return
        # The bus never carries a request to be run.
        if not isinstance(message, (Batch, Request)):
            session.connection.receive_message(message)

    async def take_parts(
        self, session: HttpSession, parts: list[Message | ProtocolError]
    ) -> list[Message | ProtocolError]:
        """The parts of a batch that are for this node; the others are told to theirs."""
        mine: list[Message | ProtocolError] = []
        for part in parts:
            try:
                if not isinstance(part, (Response, Failure)) or await self.takes(session, part) is None:
                    mine.append(part)
            except BackplaneAway:
                pass  # nobody hears that an answer in a batch was lost; who asked gives up in the end
        return mine
