"""A client as scripts write it: nothing is awaited."""

from collections.abc import Callable
from typing import Any

from mcpd import Callbacks, Prompt, Tool, sync
from mcpd.errors import McpdError
from mcpd.protocol.types.features import CallToolResult
from mcpd.sync import Client, ClientGroup


def main() -> None:
    with sync.Client("mcpd", Callbacks(list_changed=print)) as client:
        names: list[str] = [tool.name for tool in client.list_tools(fresh=True)]
        number: int = client.call("water", {"bed": "south"}, returns=int, timeout=3.0)
        forecast: dict[str, float] = client.call("forecast", bed="south", days=3, returns=dict[str, float])
        anything = client.call("water", bed="north")
        print(forecast, anything["litres"])
        prompts: list[Prompt] = client.list_prompts()
        print(names, number, prompts, client.server_info)


def several(on_progress: Callable[..., None]) -> dict[str, McpdError]:
    with ClientGroup({"garden": ["garden-server"]}, prefixes=False, opening_seconds=3.0) as group:
        result: CallToolResult = group.call_tool("water", {"bed": "south"}, on_progress=on_progress, timeout=None)
        functions: list[Callable[..., Any]] = list(group.tool_functions("water"))
        print(result.is_error, functions[0](bed="north"))
        return group.errors


def first(client: Client) -> Tool:
    return client.list_tools()[0]


main()
