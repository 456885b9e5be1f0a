"""The first page: a tool, a resource template and a prompt."""

from mcpd import Server

server = Server("Demo")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.resource("greeting://{name}")
def greeting(name: str) -> str:
    """Greet someone by name."""
    return f"Hello, {name}!"


@server.prompt()
def greet_user(name: str, style: str = "friendly") -> str:
    """Ask for a greeting."""
    styles = {
        "friendly": "Please write a warm, friendly greeting",
        "formal": "Please write a formal, professional greeting",
    }
    return f"{styles.get(style, styles['friendly'])} for someone named {name}."


if __name__ == "__main__":
    server.run(stdio=True)
