"""What is said where a package of the extra `client` is not installed."""

from __future__ import annotations

from ..errors import ConfigurationError

__all__ = ["missing"]


def missing(error: ModuleNotFoundError, what: str) -> ConfigurationError:
    """An error that says what to install for `what` (a verb with -ing).

    Raises `error` itself, if it is a module of mcpd that was not found: a mistake of ours, which no installation mends.
    """
    if (error.name or "").startswith("mcpd"):
        raise error
    return ConfigurationError(f"{what} needs the package {error.name}: pip install 'mcpd-server[client]'")
