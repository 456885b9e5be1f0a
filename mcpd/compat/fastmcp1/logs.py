"""`mcp.server.fastmcp.utilities.logging`."""

from __future__ import annotations

import logging

__all__ = ["configure_logging", "get_logger"]


def get_logger(name: str) -> logging.Logger:
    """A logger."""
    return logging.getLogger(name)


def configure_logging(level: str = "INFO") -> None:
    """Let messages of this level and above appear, if nobody has configured logging."""
    logging.basicConfig(level=level, format="%(message)s")
