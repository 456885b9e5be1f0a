"""A source: entries that are backed by no function. Nothing here may be an error to a type checker."""

from dataclasses import dataclass

from msgspec import Raw

from mcpd import CallToolResult, Server, TextContent, Tool
from mcpd.protocol.types.features import ReadResourceResult, Resource, TextResourceContents
from mcpd.server.context.exchange import Exchange
from mcpd.server.registry.entries import ActiveExtensions, Entries, ResourceEntry, ToolEntry


@dataclass(frozen=True)
class Bed(ResourceEntry):
    key: str
    text: str

    def listed(self, active: ActiveExtensions) -> Resource:
        return Resource(uri=self.key, name="bed")

    def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        return ReadResourceResult(contents=[TextResourceContents(uri, self.text)])


class Water(ToolEntry):
    def __init__(self, key: str) -> None:
        self.key = key

    def listed(self, active: ActiveExtensions) -> Tool:
        return Tool(name=self.key, input_schema={"type": "object"})

    async def run(self, arguments: Raw, exchange: Exchange) -> CallToolResult:
        return CallToolResult(content=[TextContent("wet")])


server = Server("garden")
server.replace("beds", Entries(tools=[Water("water")], resources=[Bed("bed://south", "roses")], prompts=[]))
