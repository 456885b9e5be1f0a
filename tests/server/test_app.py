"""The decorators of `Server`: what they refuse before anything is registered."""

from __future__ import annotations

from typing import Any

import pytest

from mcpd import Server
from mcpd.errors import RegistrationError
from mcpd.server.extensions.tasks.extension import TasksExtension
from mcpd.server.extensions.ui.extension import AppsExtension
from mcpd.server.metadata import OPTIONS
from mcpd.server.options import ToolOptions
from mcpd.server.registry.options import DescribedPrompt, DescribedResource, DescribedTool


def plain() -> str:
    return "x"


def test_a_resource_without_a_uri_is_refused() -> None:
    """`@server.resource` without parentheses would register nothing, and leave something else under the name."""
    server: Any = Server("t")
    with pytest.raises(
        RegistrationError, match=r'URI is the first argument, as in @server\.resource\("notes://today"\)'
    ):
        server.resource(plain)


@pytest.mark.parametrize("decorator", ["tool", "prompt"])
def test_a_name_in_the_place_of_the_function_is_refused(decorator: str) -> None:
    server: Any = Server("t")
    with pytest.raises(RegistrationError, match=rf"{decorator}: pass the name as name=, as in .*\(name='greet'\)"):
        getattr(server, decorator)("greet")


@pytest.mark.parametrize(
    ("decorator", "positional", "known"),
    [("tool", (), "visibility"), ("prompt", (), "tags"), ("resource", ("x://y",), "mime_type")],
)
def test_an_option_that_there_is_not_is_refused_with_those_there_are(
    decorator: str, positional: tuple[str, ...], known: str
) -> None:
    server: Any = Server("t")
    with pytest.raises(
        RegistrationError, match=f"^{decorator}: unknown option 'labels'; the options are name, .*{known}"
    ):
        getattr(server, decorator)(*positional, labels=["a"])(plain)


@pytest.mark.parametrize(
    ("method", "options"), [("tool", ToolOptions), ("resource", DescribedResource), ("prompt", DescribedPrompt)]
)
def test_the_help_of_a_decorator_names_every_option(method: str, options: type) -> None:
    said = getattr(Server, method).__doc__
    assert [name for name in options.__annotations__ if f"`{name}" not in said] == []


def test_options_for_type_checkers_are_ours_and_those_of_the_extensions_every_server_has() -> None:
    own = DescribedTool.__annotations__
    others = {*AppsExtension.tool_options, *TasksExtension.tool_options}
    assert set(ToolOptions.__annotations__) == {*own, *others}
    assert not set(own) & others


@pytest.mark.parametrize(
    ("decorator", "kind"), [("tool", DescribedTool), ("resource", DescribedResource), ("prompt", DescribedPrompt)]
)
def test_what_type_checkers_know_of_is_what_is_taken(decorator: str, kind: type) -> None:
    assert OPTIONS[decorator] == tuple(kind.__annotations__)
