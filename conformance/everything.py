"""The server that the official conformance suite and the transcripts talk to: one of everything.

    mcpd serve --stdio conformance/everything.py

Written with the public API, as any user would write it. Names and texts of the first parts are the suite's;
what stands below "beyond the suite" is there for the transcripts.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from mcpd import (
    ContentBlock,
    Context,
    Server,
    ToolError,
    audio,
    choices,
    elicit_form,
    elicit_url,
    embedded,
    image,
    link,
    list_roots,
    sample,
    text,
)
from mcpd.protocol.types.features import Tool
from mcpd.protocol.types.interaction import ToolChoice

# A red dot, and no sound at all.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=")

server = Server(
    "everything",
    version="1.0.0",
    title="Everything",
    description="One of everything, for conformance tests",
    website_url="https://example.com/everything",
    icons=[{"src": "https://example.com/everything.png", "mimeType": "image/png", "sizes": ["48x48"]}],
    instructions="Call the tools whose names say what they test.",
)

# --------------------------------------------------------------------------------------- tools


@server.tool
async def test_simple_text() -> str:
    """Gives a text."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> ContentBlock:
    """Gives an image."""
    return image(PNG, "image/png")


@server.tool
async def test_audio_content() -> ContentBlock:
    """Gives a sound."""
    return audio(WAV, "audio/wav")


@server.tool
async def test_embedded_resource() -> ContentBlock:
    """Gives the content of a resource."""
    return embedded("test://embedded-resource", "This is an embedded resource content.", "text/plain")


@server.tool
async def test_multiple_content_types() -> list[ContentBlock]:
    """Gives a text, an image and a resource."""
    return [
        text("Multiple content types test:"),
        image(PNG, "image/png"),
        embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
    ]


@server.tool
async def test_error_handling() -> str:
    """Always fails."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Reports progress three times."""
    for done in (0, 50, 100):
        await ctx.progress(done, total=100, message=f"Completed step {done} of 100")
        await asyncio.sleep(0.05)
    return "Progress complete"


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Sends three log messages."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(message)
        await asyncio.sleep(0.05)
    return "Logging complete"


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Sends a log message to those who asked for log messages."""
    await ctx.info("A message for those who want it")
    return "Logged, if that was wanted"


@server.tool
async def custom_header(
    region: Annotated[
        str, Meta(description="Goes into a header too", extra_json_schema={"x-mcp-header": "Region"})
    ] = "",
) -> str:
    """Has an argument that HTTP clients mirror in the header Mcp-Param-Region."""
    return f"Region: {region}"


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Lets go of its client's connection, so that the client comes back for the result."""
    ctx.close_stream()
    await asyncio.sleep(0.2)
    return "Reconnection test completed"


@server.tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
async def json_schema_2020_12_tool(arguments: dict[str, Any]) -> str:
    """Has an input schema with many of the keywords of JSON Schema 2020-12."""
    return f"Got {', '.join(sorted(arguments))}"


# --------------------------------------------------------------------------- asking the client


class User(Struct):
    """Who somebody is."""

    username: Annotated[str, Meta(description="Your name here")]
    email: Annotated[str, Meta(description="Your address", extra_json_schema={"format": "email"})]


class Defaults(Struct):
    """A default of each kind."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


TITLED = {"value1": "First Option", "value2": "Second Option", "value3": "Third Option"}


class Enums(Struct, rename="camel"):
    """A choice of each kind."""

    untitled_single: Literal["option1", "option2", "option3"]
    titled_single: Annotated[str, choices(TITLED)]
    legacy_enum: Annotated[
        Literal["opt1", "opt2", "opt3"],
        Meta(extra_json_schema={"enumNames": ["Option One", "Option Two", "Option Three"]}),
    ]
    untitled_multi: list[Literal["option1", "option2", "option3"]] = field(default_factory=list)
    titled_multi: list[Annotated[str, choices(TITLED)]] = field(default_factory=list)


class Name(Struct):
    """A name."""

    name: str


class Color(Struct):
    """A color."""

    color: str


class Confirmation(Struct):
    """Yes or no."""

    ok: bool


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Asks the client's model."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {answer.text}"


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the user who they are."""
    answer = await ctx.elicit(message, User)
    return f"User response: action {answer.action}, content {answer.content}"


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Asks with a default for every field."""
    answer = await ctx.elicit("Please review and update the form fields with defaults", Defaults)
    return f"Elicitation completed: action {answer.action}, content {answer.content}"


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Asks with every kind of choice."""
    answer = await ctx.elicit("Please select options from the enum fields", Enums)
    return f"Elicitation completed: action {answer.action}, content {answer.content}"


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Cannot work without the client's model."""
    answer = await ctx.sample("Are you there?", max_tokens=10, key="are_you_there")
    return f"The model says: {answer.text}"


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Reports progress and then asks the user."""
    await ctx.progress(1, total=2)
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"The user chose to {answer.action}"


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Asks for a name."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {answer.get().name}!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Asks the client's model for a capital."""
    answer = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model says: {answer.text}"


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Asks for the client's roots."""
    roots = await ctx.list_roots(key="client_roots")
    return f"The client has {len(roots)} roots: {', '.join(root.uri for root in roots)}"


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Keeps something from one round to the next."""
    was_kept = ctx.state.get("kept") == "from the first round"
    ctx.state["kept"] = "from the first round"
    (await ctx.elicit("Please confirm", Confirmation, key="confirm")).get()
    return "Confirmed, state-ok" if was_kept else "Confirmed, but nothing was kept"


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Asks for three things at once."""
    answers = await ctx.ask(
        user_name=elicit_form("What is your name?", Name),
        greeting=sample("Generate a greeting", max_tokens=50),
        client_roots=list_roots(),
    )
    name, greeting, roots = answers["user_name"].get().name, answers["greeting"].text, answers["client_roots"]
    return f"{greeting}, {name}! You have {len(roots)} roots."


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Asks two questions, one after the other."""
    name = (await ctx.elicit("Step 1: What is your name?", Name, key="step1")).get().name
    color = (await ctx.elicit(f"Step 2: {name}, what is your favorite color?", Color, key="step2")).get().color
    return f"{name} likes {color}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Asks for a confirmation; its state cannot be changed on the way."""
    (await ctx.elicit("Please confirm", Confirmation, key="confirm")).get()
    return "Confirmed"


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Asks for as much as the client can answer."""
    questions = {
        "user_name": elicit_form("What is your name?", Name),
        "greeting": sample("Generate a greeting", max_tokens=50),
        "client_roots": list_roots(),
    }
    possible = {key: question for key, question in questions.items() if ctx.can_ask(question)}
    answers = await ctx.ask(**possible)
    return f"Answered: {', '.join(answers)}"


# ------------------------------------------------------------------- what changes while it runs


@server.tool
async def test_trigger_tool_change() -> str:
    """Adds a tool, or takes it away again."""
    if not server.remove_tool("test_dynamic_tool"):
        server.add_tool(test_simple_text, name="test_dynamic_tool", description="Comes and goes.")
    return "The list of tools has changed"


@server.tool
async def test_trigger_prompt_change() -> str:
    """Adds a prompt, or takes it away again."""
    if not server.remove_prompt("test_dynamic_prompt"):
        server.add_prompt(test_simple_prompt, name="test_dynamic_prompt", description="Comes and goes.")
    return "The list of prompts has changed"


@server.tool
async def test_trigger_resource_change() -> str:
    """Adds a resource, or takes it away again."""
    if not server.remove_resource("test://dynamic-resource"):
        server.add_text("test://dynamic-resource", "Comes and goes.", name="Dynamic Resource")
    return "The list of resources has changed"


@server.tool
async def test_trigger_resource_update(uri: str) -> str:
    """Says that a resource holds something else now."""
    server.resource_updated(uri)
    return f"{uri} was updated"


# ----------------------------------------------------------------------------------- resources


@server.resource("test://static-text", name="Static Text Resource", mime_type="text/plain")
def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", name="Static Binary Resource", mime_type="image/png")
def static_binary() -> bytes:
    """An image that never changes."""
    return PNG


@server.resource("test://watched-resource", name="Watched Resource", mime_type="text/plain")
def watched_resource() -> str:
    """A text to subscribe to."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", name="Resource Template", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:
    """Data by number."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@server.completion("id", template="test://template/{id}/data")
def known_ids(typed: str) -> list[str]:
    """The numbers that there are data for."""
    return ["1", "12", "123", "45"]


# ------------------------------------------------------------------------------------- prompts


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments.

    Args:
        arg1: First test argument.
        arg2: Second test argument.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion("arg1", prompt="test_prompt_with_arguments")
def first_arguments(typed: str, others: dict[str, str]) -> list[str]:
    """Cities; of the other argument's country, where that is known already."""
    by_country = {"France": ["Paris", "Lyon"], "Germany": ["Berlin", "Potsdam"]}
    return by_country.get(others.get("arg2", ""), ["Paris", "Berlin", "Potsdam", "Lyon"])


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:  # noqa: N803
    """A prompt that holds a resource.

    Args:
        resourceUri: URI of the resource to embed.
    """
    return [
        embedded(resourceUri, "Embedded resource content for testing.", "text/plain"),
        "Please process the embedded resource above.",
    ]


@server.prompt
def test_prompt_with_image() -> list[Any]:
    """A prompt that holds an image."""
    return [image(PNG, "image/png"), "Please analyze the image above."]


class About(Struct):
    """What a prompt is for."""

    context: Annotated[str, Meta(description="What the prompt is for")]


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks the user first."""
    answer = await ctx.elicit("What context should the prompt use?", About, key="user_context")
    return f"Use this context: {answer.get().context}"


# ---------------------------------------------------------------------------- beyond the suite


class Weather(Struct):
    """The weather somewhere."""

    temperature: float
    conditions: str


@server.tool(
    title="Weather",
    annotations={"title": "Weather", "readOnlyHint": True, "openWorldHint": False},
    icons=[{"src": "https://example.com/weather.png", "mimeType": "image/png"}],
    meta={"com.example/unit": "celsius"},
)
async def structured_object(city: Annotated[str, Meta(description="City name")]) -> Weather:
    """The weather in a city."""
    return Weather(22.5, f"Partly cloudy in {city}")


@server.tool
async def structured_list(count: int = 2) -> list[int]:
    """Numbers from 1."""
    return list(range(1, count + 1))


@server.tool
async def structured_null() -> Weather | None:
    """No weather at all."""
    return None


@server.tool
async def all_content() -> list[ContentBlock]:
    """A block of each type."""
    return [
        text("text"),
        image(PNG, "image/png"),
        audio(WAV, "audio/wav"),
        embedded("test://embedded", "embedded", "text/plain"),
        link("test://static-text", "Static Text Resource", description="Worth reading", mime_type="text/plain"),
    ]


@server.tool
async def wait_for_ever() -> str:
    """Ends only if it is cancelled."""
    await asyncio.Event().wait()
    return "never"


@server.tool
async def crash() -> str:
    """Fails in a way that nobody meant."""
    raise RuntimeError("secret detail in /etc/passwd")


@server.tool
async def log_every_level(ctx: Context) -> str:
    """Sends a message of each level, from debug to emergency."""
    levels: list[Any] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
    for level in levels:
        await ctx.log(level, {"level": level}, logger="everything")
    return "logged"


@server.tool
async def sample_with_tools(ctx: Context) -> str:
    """Lets the client's model use a tool."""
    weather = Tool(name="get_weather", input_schema={"type": "object", "properties": {"city": {"type": "string"}}})
    answer = await ctx.sample(
        "What is the weather in Paris?",
        max_tokens=100,
        tools=[weather],
        tool_choice=ToolChoice(mode="auto"),
        key="weather",
    )
    return f"The model stopped with {answer.stop_reason}"


@server.tool
async def visit_page(ctx: Context) -> str:
    """Asks the user to visit a page, and tells the client when that is done."""
    page = elicit_url("Please sign in", "https://example.com/sign-in", "sign-in-1")
    answer = (await ctx.ask(page=page))["page"]
    await ctx.elicitation_complete("sign-in-1")
    return f"The user chose to {answer.action}"


@server.tool
async def page_required(ctx: Context) -> str:
    """Cannot run before the user has visited a page."""
    ctx.require_url("Please sign in", "https://example.com/sign-in", elicitation_id="sign-in-2", key="page")


@server.resource("test://asks-first", name="Asks First", mime_type="text/plain")
async def asks_first(ctx: Context) -> str:
    """A text for somebody by name."""
    answer = await ctx.elicit("Who reads this?", Name, key="reader")
    return f"For {answer.get().name}"
