"""A client as scripts write it: nothing is awaited."""

from mcpd import Callbacks, Prompt, Tool, sync
from mcpd.sync import Client


def main() -> None:
    with sync.Client("mcpd", Callbacks(list_changed=print)) as client:
        names: list[str] = [tool.name for tool in client.list_tools(fresh=True)]
        number: int = client.call("water", {"bed": "south"}, returns=int, timeout=3.0)
        prompts: list[Prompt] = client.list_prompts()
        print(names, number, prompts, client.server_info)


def first(client: Client) -> Tool:
    return client.list_tools()[0]


main()
