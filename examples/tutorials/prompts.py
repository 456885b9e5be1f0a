"""Prompts: text, conversations, embedded resources and images."""

from typing import Annotated

from pydantic import Field

from mcpd import (
    Context,
    EmbeddedResource,
    GetPromptResult,
    PromptMessage,
    Server,
    TextContent,
    TextResourceContents,
    image,
)  # fmt: skip

server = Server("Code Helper")

DIAGRAM = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


@server.prompt(title="Code review")
def review_code(
    code: Annotated[str, Field(description="The code to review.")],
    language: Annotated[str, Field(description="The language the code is written in.")] = "python",
) -> str:
    """Review a piece of code."""
    return f"Please review this {language} code:\n\n{code}"


@server.prompt
def debug_error(error: str) -> list[tuple[str, str]]:
    """Start a debugging conversation."""
    return [
        ("user", "I'm seeing this error:"),
        ("user", error),
        ("assistant", "I'll help debug that. What have you tried so far?"),
    ]


@server.prompt
def roleplay_scenario(character: str, situation: str) -> list[PromptMessage]:
    """Set up a scenario with its first messages."""
    return [
        PromptMessage("user", TextContent(f"You are {character}. The situation is: {situation}")),
        PromptMessage("assistant", TextContent("I am ready. What happens next?")),
    ]


@server.prompt(
    name="analyze_data_request",
    description="Creates a request to analyze data with specific parameters",
    tags={"analysis", "data"},
    meta={"version": "1.1", "author": "data-team"},
)
def data_analysis_prompt(
    data_uri: str = Field(description="The URI of the resource containing the data."),
    analysis_type: str = Field(default="summary", description="Type of analysis."),
    include_charts: bool = False,
) -> str:
    charts = " Include relevant charts." if include_charts else ""
    return f"Please perform a '{analysis_type}' analysis on the data found at {data_uri}.{charts}"


@server.prompt
def analyze_numbers(numbers: list[int], labels: dict[str, str], threshold: float) -> str:
    """Analyze numbers. Values that are not text are written as JSON and validated before the function runs."""
    average = sum(numbers) / len(numbers)
    return f"Average: {average}, above threshold: {average > threshold}, from {labels['source']}"


@server.resource("style://python", mime_type="text/markdown")
def style_guide() -> str:
    """The team's Python style guide."""
    return "# Style\n\nShort functions."


@server.prompt
def review_with_guide(code: str) -> list[EmbeddedResource | str]:
    """Review a piece of code against the team's style guide."""
    guide = TextResourceContents("style://python", style_guide(), "text/markdown")
    return [EmbeddedResource(guide), f"Review this code against the style guide above:\n\n{code}"]


@server.prompt
def explain_component(component: str) -> list[object]:
    """Explain one component using the architecture diagram."""
    return [image(DIAGRAM), f"Where does {component} sit in this architecture?"]


@server.prompt
async def generate_report_request(report_type: str, ctx: Context) -> GetPromptResult:
    """Ask for a report."""
    message = PromptMessage("user", TextContent(f"Please create a {report_type} report by {ctx.transport}."))
    return GetPromptResult(messages=[message], description="A report")


@server.tool
def save_template(name: str, instruction: str) -> str:
    """Save an instruction as a prompt that the user can pick; clients are notified."""

    def template(code: str) -> str:
        return f"{instruction}\n\n{code}"

    server.remove_prompt(name)
    server.add_prompt(template, name=name, description=instruction)
    return f"Saved '{name}' to the prompt menu."


if __name__ == "__main__":
    server.run(stdio=True)
