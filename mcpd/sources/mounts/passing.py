"""A single mounted server: its names, its description of itself and its results stay as they are.

Methods that mcpd does not know are passed on, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.json import Decoder, encode

from mcpd import __version__
from mcpd.errors import ConfigurationError
from mcpd.protocol.envelope import SERVER_INFO
from mcpd.protocol.types.base import DiscoverResult, InitializeResult, RawResult
from mcpd.protocol.versions.table import SUPPORTED
from mcpd.server import Server
from mcpd.server.context.exchange import Exchange, Handler, finished
from mcpd.server.extensions.ui.constants import UI
from mcpd.server.registry.tools import failed
from .entries import valid_entries
from .manifest import About
from .mounted import LINE, Mounts, mounts_of
from .upstream import LISTS, Unavailable, Upstream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .targets import Wanted

_read_members = Decoder(dict[str, Raw]).decode
_PASSED = ("tools/call", "prompts/get", "resources/read", "completion/complete")


def server_of(wanted: Sequence[Wanted], prefix: str = "auto", group: str = LINE) -> Server:
    """Return a server that offers only what these servers offer. Raises ConfigurationError.

    A single one is passed through as it is, unless `prefix` is "always".
    """
    is_alone = len(wanted) == 1 and wanted[0].settings.prefix is None and prefix != "always"
    if is_alone and wanted[0].target is None:
        raise ConfigurationError(wanted[0].problem)
    server = Server("+".join(each.name for each in wanted), version=__version__)
    mounts = mounts_of(server)
    mounts.update(group, wanted, "never" if is_alone else prefix)
    if is_alone:
        pass_on(server, mounts)
    return server


def pass_on(server: Server, mounts: Mounts) -> None:
    """Let a server be what its only mount is."""
    passing = _Passing(server, mounts)
    server.handlers.put("initialize", passing.initialize)
    server.handlers.put("server/discover", passing.discover)
    server.answer_others(passing.handler)
    if passing.upstream.settings.changes_names:
        return  # the catalog knows the other names
    for method in _PASSED:
        server.handlers.put(method, passing.handler(method))
    for method in LISTS.keys() - {"events/list"}:
        server.handlers.put(method, passing.lister(method, server.handlers.bare(method)))


class _Passing:
    def __init__(self, server: Server, mounts: Mounts) -> None:
        self._server = server
        self._mounts = mounts

    def upstream_for(self, exchange: Exchange) -> Upstream:
        return self.upstream.for_user(exchange.call.session.opening.principal)

    @property
    def upstream(self) -> Upstream:
        # A reload may have replaced it.
        if not self._mounts.by_name:
            raise Unavailable("the mounted server was removed from the configuration; restart mcpd")
        return next(iter(self._mounts.by_name.values()))

    async def initialize(self, exchange: Exchange, params: Any) -> InitializeResult:
        about = await self._about(exchange)
        return InitializeResult(
            protocol_version=exchange.call.version.name,
            capabilities=about.capabilities,
            server_info=about.info or self._server.identity,
            instructions=about.instructions,
        )

    async def discover(self, exchange: Exchange, params: Any) -> DiscoverResult:
        about = await self._about(exchange)
        return DiscoverResult(
            supported_versions=list(SUPPORTED),
            capabilities=about.capabilities,
            instructions=about.instructions,
            meta={SERVER_INFO: about.info or self._server.identity},
        )

    async def _about(self, exchange: Exchange) -> About:
        about = self.upstream.about
        if about is None:
            await self.upstream.connection(exchange)
            about = self.upstream.about
            assert about is not None
        if about.info is not None:
            self._server.identify(about.info)
        return about

    def handler(self, method: str) -> Handler:
        """Return a handler that passes a request on as it is."""

        async def handle(exchange: Exchange, params: Any) -> Any:
            from .relay import forward  # a start with a manifest needs none of it

            members = _read_members(exchange.call.raw or b"{}")
            try:
                return await self.upstream_for(exchange).call(
                    exchange,
                    lambda connection: forward(connection, method, members, exchange),
                    is_repeatable=method != "tools/call" or self._is_repeatable(params.name),
                )
            except Unavailable as error:
                if method != "tools/call":
                    raise
                return failed(str(error))

        return handle

    def _is_repeatable(self, tool: str) -> bool:
        return getattr(self._server.catalog.tools.get(tool), "is_repeatable", False)

    def lister(self, method: str, ours: Handler) -> Handler:
        """Return a handler of a list, which has the entries as the server wrote them."""

        async def handle(exchange: Exchange, params: Any) -> Any:
            upstream = self.upstream_for(exchange)
            listed = upstream.lists.get(method)
            if listed is None or not listed.page or listed.version is not exchange.call.version:
                return await finished(ours(exchange, params))
            if listed.has_ui and not self._server.extensions[UI].admits(exchange.client):
                return await finished(ours(exchange, params))
            if listed.raw is None:
                member = LISTS[method][1]
                members = {name: value for name, value in listed.page.items() if name != "nextCursor"}
                entries = [raw for raw, _ in valid_entries(upstream, method)]
                listed.raw = Raw(encode({**members, member: entries}))

            return RawResult(raw=listed.raw)

        return handle
