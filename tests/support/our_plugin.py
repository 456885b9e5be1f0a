"""What pytest has to be told of our plugin: nothing where it is installed, as in a checkout that is set up anew."""

from __future__ import annotations

from importlib.metadata import entry_points

__all__ = ["IS_INSTALLED", "OUR_PLUGIN"]

IS_INSTALLED = any(
    one.value.endswith(".pytest_plugin") and one.name == "mcpd" for one in entry_points(group="pytest11")
)

# pytest-asyncio is here for what runs beside our plugin alone.
OUR_PLUGIN = ("-p", "no:asyncio") if IS_INSTALLED else ("-p", "no:asyncio", "-p", "mcpd.testing.pytest_plugin")
