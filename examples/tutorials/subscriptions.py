"""Resources that change, and clients that subscribe to them."""

from mcpd import Server

server = Server("Sprint board")

BOARDS = {"sprint": {"design": False, "build": False, "ship": False}}


@server.resource("board://{name}")
def board(name: str) -> str:
    """The tasks of a board."""
    return "\n".join(f"[{'x' if done else ' '}] {task}" for task, done in BOARDS[name].items())


@server.tool
def complete_task(board: str, task: str) -> str:
    """Mark a task as done; subscribers of the board are notified."""
    BOARDS[board][task] = True
    server.resource_updated(f"board://{board}")
    return f"{task}: done"


def sprint_report() -> str:
    """Count the tasks that are done."""
    return f"{sum(done for tasks in BOARDS.values() for done in tasks.values())} task(s) done"


@server.tool
def enable_reports() -> str:
    """Add another tool."""
    server.remove_tool("sprint_report")
    server.add_tool(sprint_report)
    return "reporting is live"


if __name__ == "__main__":
    server.run(stdio=True)
