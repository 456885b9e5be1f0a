"""Questions to the user: forms, single values, choices, and pages to visit."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from mcpd import Context, Server, SyncContext, ToolError, choices

server = Server("Bistro")


class AlternativeDate(BaseModel):
    accept_alternative: bool = Field(description="Try another date?")
    date: str = Field(default="2025-12-26", description="Alternative date (YYYY-MM-DD)")


@server.tool
async def book_table(date: str, party_size: int, ctx: Context) -> str:
    """Book a table at the bistro."""
    if date != "2025-12-25":
        return f"Booked a table for {party_size} on {date}."
    answer = await ctx.elicit(f"No tables for {party_size} on {date}. Would you like another date?", AlternativeDate)
    if answer.action == "accept" and answer.get().accept_alternative:
        return await book_table(answer.get().date, party_size, ctx)
    return "No booking made."


@dataclass
class UserInfo:
    name: str
    age: int


@server.tool
async def collect_user_info(ctx: Context) -> str:
    """Ask for a few things at once."""
    answer = await ctx.elicit("Please provide your information", UserInfo)
    if answer.action == "accept":
        return f"Hello {answer.get().name}, you are {answer.get().age} years old"
    return "Information not provided" if answer.action == "decline" else "Operation cancelled"


@server.tool
async def plan_meeting(ctx: Context) -> str:
    """Plan a meeting step by step. Declining a question ends the tool."""
    title = (await ctx.elicit("What's the meeting title?", str)).get()
    minutes = (await ctx.elicit("Duration in minutes?", int)).get()
    is_urgent = (await ctx.elicit("Is this urgent?", bool)).get()
    return f"Meeting '{title}' for {minutes} minutes (urgent: {is_urgent})"


class Priority(Enum):
    LOW = "low"
    HIGH = "high"


@dataclass
class TaskDetails:
    title: str
    priority: Literal["low", "medium", "high"]


@server.tool
def set_priority(ctx: SyncContext) -> str:
    """Ask for one of several values, in a plain function."""
    return f"Priority set to: {ctx.elicit('What priority level?', TaskDetails).get().priority}"


@server.tool
def set_priority_by_enum(ctx: SyncContext) -> str:
    """Ask for a value of an Enum."""
    return f"Priority set to: {ctx.elicit('What priority level?', Priority).get().value}"


@dataclass
class Level:
    level: Annotated[str, choices({"low": "Low priority", "high": "High priority"})]


@server.tool
async def set_priority_by_title(ctx: Context) -> str:
    """Ask for one of several values with titles."""
    return f"Priority set to: {(await ctx.elicit('What priority level?', Level)).get().level}"


@server.tool
async def select_tags(ctx: Context) -> str:
    """Ask for several of several values."""
    tags = (await ctx.elicit("Choose tags", list[Literal["bug", "feature", "documentation"]])).get()
    return f"Selected tags: {', '.join(tags)}"


@server.tool
async def approve_action(ctx: Context) -> str:
    """Act only with the user's consent."""
    answer = await ctx.elicit("Approve this action?", bool)
    if answer.action == "accept" and answer.get():
        return "Done"
    raise ToolError("Action rejected")


@server.tool
async def pay_deposit(booking_id: str, ctx: Context) -> str:
    """Take the deposit for a booking on a page that the client does not see."""
    answer = await ctx.elicit_url(
        "A 20 EUR deposit confirms your booking.",
        f"https://pay.example.com/deposit/{booking_id}",
        elicitation_id=f"deposit-{booking_id}",
    )
    if answer.action == "accept":
        return "Complete the payment in your browser."
    return "No deposit taken. The booking expires in one hour."


@server.tool
async def confirm_deposit(booking_id: str, ctx: Context) -> str:
    """Record a payment reported by the payment provider."""
    await ctx.elicitation_complete(f"deposit-{booking_id}")
    return f"Deposit received for booking {booking_id}."


if __name__ == "__main__":
    server.run(stdio=True)
