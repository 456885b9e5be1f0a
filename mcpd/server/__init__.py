"""`Server`: what a program offers over MCP, and how it is served."""

from mcpd.server.app import Server

__all__ = ["Server"]
