"""What the official suite runs as a client: `python conformance/client.py URL`, a thin user of `mcpd.Client`.

`MCP_CONFORMANCE_SCENARIO` says what to do, `MCP_CONFORMANCE_CONTEXT` has what some scenarios need for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec

from mcpd import (
    Callbacks,
    Client,
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    McpdError,
    Root,
    TextContent,
)
from mcpd.client.auth import ClientCredentials, EnterpriseManaged, OAuth, PrivateKeyJwt, WorkloadIdentity

Scenario = Callable[[Client], Awaitable[object]]


def fill_in(form: ElicitFormParams) -> ElicitResult:
    """Accept a form as it was proposed: every default taken, yes to what has none."""
    content: dict[str, Any] = {}
    for name, field in form.requested_schema.get("properties", {}).items():
        if "default" in field:
            content[name] = field["default"]
        elif field.get("type") == "boolean":
            content[name] = True
        elif name in form.requested_schema.get("required", []):
            content[name] = field["enum"][0] if "enum" in field else {"string": "x", "array": []}.get(field["type"], 1)
    return ElicitResult(action="accept", content=content)


def sample(asked: CreateMessageParams) -> CreateMessageResult:
    """Answer as a model of few words."""
    return CreateMessageResult(role="assistant", content=TextContent("Hello."), model="none")


async def look(client: Client) -> None:
    """List the tools, which is all that most scenarios ask for."""
    await client.list_tools()


async def add(client: Client) -> None:
    """Add two numbers."""
    await client.list_tools()
    await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def take_defaults(client: Client) -> None:
    """Be asked for a form in which everything has a default."""
    await client.list_tools()
    await client.call_tool("test_client_elicitation_defaults")


async def come_back(client: Client) -> None:
    """Wait for an answer whose stream ends before it has come."""
    await client.list_tools()
    await client.call_tool("test_reconnection")


async def give_back_the_schema(client: Client) -> None:
    """Send the schema of a tool as it was understood."""
    tools = {tool.name: tool for tool in await client.list_tools()}
    await client.call_tool("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema})


async def say_who_asks(client: Client) -> None:
    """Say something of each kind."""
    tools = await client.list_tools()
    for tool in tools:
        await client.call_tool(tool.name, {})


async def use_everything(client: Client) -> None:
    """One request of each method that has a name to say in a header."""
    for tool in await client.list_tools():
        await client.call_tool(tool.name, {})
    for resource in await client.list_resources():
        await client.read_resource(resource.uri)
    for prompt in await client.list_prompts():
        await client.get_prompt(prompt.name)


async def call_as_told(client: Client) -> None:
    """Call what the suite says, with its arguments."""
    await client.list_tools()
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def call_what_is_left(client: Client) -> None:
    """Call each tool that the client has not refused."""
    for tool in await client.list_tools():
        await client.call_tool(tool.name, dict.fromkeys(tool.input_schema.get("properties", {}), "x"))  # type: ignore[union-attr]


async def answer_in_rounds(client: Client) -> None:
    """Calls that ask for input first, some with a state and some without."""
    await client.list_tools()
    for name in ("echo_state", "unrelated", "no_state", "no_result_type"):
        await client.call_tool(f"test_mrtr_{name}")


async def list_skills(client: Client) -> list[Any]:
    """List the skills, and read none of their files before one is loaded."""
    skills: list[Any] = msgspec.json.decode(await client.request("skills/list"))["skills"]
    return skills


async def load_skills(client: Client) -> None:
    """Load each skill, and what belongs to it; nothing more of one whose file is not what was listed."""
    for skill in await list_skills(client):
        for listed in skill["resources"]:
            contents = (await client.read_resource(listed["uri"])).contents[0]
            text: str = contents.text  # type: ignore[union-attr]
            data = text.encode()
            if len(data) != listed["size"] or listed["digest"] != f"sha256:{hashlib.sha256(data).hexdigest()}":
                print(f"{listed['uri']} is not what was listed", file=sys.stderr)
                break
            if listed["uri"] == skill["uri"] and front_matter(text) != skill["frontmatter"]:
                print(f"{listed['uri']} says something else of itself than its list", file=sys.stderr)
                break


def front_matter(text: str) -> dict[str, str]:
    """The plain `name: value` lines between the first two rules."""
    lines = text.split("---\n")[1].splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


SCENARIOS: dict[str, Scenario] = {
    "initialize": look,
    "tools_call": add,
    "elicitation-sep1034-client-defaults": take_defaults,
    "sse-retry": come_back,
    "json-schema-2020-12-preservation": give_back_the_schema,
    "request-metadata": say_who_asks,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_what_is_left,
    "json-schema-ref-no-deref": look,
    "sep-2322-client-request-state": answer_in_rounds,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": load_skills,
    "sep-2640-client-verify-size": load_skills,
    "sep-2640-client-verify-frontmatter": load_skills,
}


async def log_in(client: Client) -> None:
    """Be let in, and call what there is: some tools want more rights than the first login asked for."""
    for tool in await client.list_tools():
        await client.call_tool(tool.name, {})


class Browser:
    """A user who agrees to everything: the browser returns where the page redirects to."""

    def __init__(self) -> None:
        self.returned = ""

    async def visit(self, url: str) -> None:
        """Ask for the page, and do not follow."""
        async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as reply:
            self.returned = reply.headers["Location"]

    def callback(self) -> str:
        """Where the browser was sent."""
        return self.returned


def authorization(name: str) -> Any:
    """How the scenario wants the client to be let in; None for those without a login."""
    if not name.startswith("auth/"):
        return None
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    scenario = name.removeprefix("auth/")
    if scenario == "client-credentials-basic":
        return ClientCredentials(client_id=context["client_id"], client_secret=context["client_secret"])
    if scenario == "client-credentials-jwt":
        return PrivateKeyJwt(
            client_id=context["client_id"],
            key_pem=context["private_key_pem"],
            algorithm=context.get("signing_algorithm", "ES256"),
        )
    if scenario in ("enterprise-managed-authorization", "cross-app-access-complete-flow"):
        return EnterpriseManaged(
            client_id=context["client_id"],
            client_secret=context["client_secret"],
            idp_token_endpoint=context["idp_token_endpoint"],
            idp_client_id=context["idp_client_id"],
            id_token=context["idp_id_token"],
        )
    if scenario == "wif-jwt-bearer":
        return WorkloadIdentity(source=lambda: str(context["valid_jwt"]))

    browser = Browser()
    return OAuth(
        client_id=context.get("client_id"),
        client_secret=context.get("client_secret"),
        issuer=context.get("issuer"),
        client_metadata_url="https://conformance-test.local/client-metadata.json",
        redirect="http://127.0.0.1:33418/callback",
        open_url=browser.visit,
        wait_callback=browser.callback,
        store="memory",
    )


EXTENSIONS: dict[str, dict[str, Any]] = {
    name: {"io.modelcontextprotocol/skills": {}} for name in SCENARIOS if name.startswith("sep-2640-")
}


async def main() -> int:
    """Do what the scenario asks for; 1 if the server was in the way."""
    name = os.environ["MCP_CONFORMANCE_SCENARIO"]
    scenario = log_in if name.startswith("auth/") else SCENARIOS.get(name)
    if scenario is None:
        print(f"no scenario {name!r} here", file=sys.stderr)
        return 2
    callbacks = Callbacks(elicit_form=fill_in, sample=sample, roots=lambda: [Root(uri="file:///tmp")])
    try:
        async with Client(
            sys.argv[-1], callbacks, extensions=EXTENSIONS.get(name), timeout=20, auth=authorization(name)
        ) as client:
            await scenario(client)
    except McpdError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
