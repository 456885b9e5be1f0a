"""The table of the extensions that every server has: the one place from which a server, its types, its help and the
command line have them."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any, TypedDict, get_type_hints

import pytest

from mcpd import Server
from mcpd.errors import ConfigurationError
from mcpd.server.extensions import serving
from mcpd.server.extensions.base import Extension
from mcpd.server.extensions.builtin import BUILT_IN, BuiltIn
from mcpd.server.extensions.options import BuiltInOptions, BuiltInServeOptions, BuiltInToolOptions
from mcpd.server.serving import settings_for

each_built_in = pytest.mark.parametrize("row", BUILT_IN, ids=lambda row: row.id)


@each_built_in
def test_a_row_says_what_its_class_does(row: BuiltIn) -> None:
    """Its id, and the options of its constructor, each of which can be left out."""
    extension = row.load_class()()  # type: ignore[call-arg]
    assert extension.id == row.id
    taken = inspect.signature(row.load_class()).parameters
    assert all(each.kind is each.KEYWORD_ONLY and each.default is not each.empty for each in taken.values())
    assert set(taken) == set(getattr(row.load_options(), "__annotations__", ()))
    declared = serving.serve_options_of(extension)
    assert declared == [each for each in serving.serve_options() if each.id == row.id]
    assert {each.name for each in declared} <= set(taken)


def test_type_checkers_know_what_all_of_them_take() -> None:
    constructor = {name for row in BUILT_IN for name in getattr(row.load_options(), "__annotations__", ())}
    assert set(get_type_hints(BuiltInOptions)) == constructor
    assert set(get_type_hints(BuiltInServeOptions)) == {each.name for each in serving.serve_options()}
    extensions = Server("s").extensions.values()
    assert set(get_type_hints(BuiltInToolOptions)) == {name for each in extensions for name in each.tool_options}


def test_the_signature_of_a_server_shows_each_option() -> None:
    shown = inspect.signature(Server).parameters
    assert (shown["apps"].default, shown["strict_model_list"].default) == ("auto", False)
    assert not [each for each in shown.values() if each.kind is each.VAR_KEYWORD]
    assert next(iter(shown)) == "name"

    class Named(Server):
        def __init__(self, length: int, **options: Any) -> None:
            super().__init__("n" * length, **options)

    class Same(Server):
        pass

    assert list(inspect.signature(Named).parameters) == ["length", "options"]
    assert inspect.signature(Same) == inspect.signature(Server)


def test_the_help_of_a_server_names_each_option() -> None:
    for name in get_type_hints(BuiltInOptions):
        assert f"`{name}`" in (Server.__doc__ or "")
    margins = {len(line) - len(line.lstrip()) for line in (inspect.getdoc(Server) or "").splitlines() if line}
    assert margins == {0}


def test_an_option_that_none_has_is_refused_as_python_does() -> None:
    with pytest.raises(TypeError, match=r"^Server\.__init__\(\) got an unexpected keyword argument 'appz'$"):
        Server("s", appz="never")  # type: ignore[call-arg]


class SecondOptions(TypedDict, total=False):
    speed: int


class Second(Extension):
    def __init__(self, *, speed: int = 1) -> None:
        super().__init__("com.example/second")
        self.speed = speed


def test_a_further_row_is_all_that_a_server_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in `server/` is told: it takes the options, and shows them."""
    monkeypatch.setitem(sys.modules, "mcpd.server.extensions.second", sys.modules[__name__])
    row = BuiltIn("com.example/second", extension="second:Second", options="second:SecondOptions")
    monkeypatch.setattr("mcpd.server.extensions.builtin.BUILT_IN", (*BUILT_IN, row))
    server = Server("s", speed=3, apps="never")  # type: ignore[call-arg]
    second = server.extensions["com.example/second"]
    assert isinstance(second, Second)
    assert second.speed == 3
    assert inspect.signature(Server).parameters["speed"].default == 1


def test_what_is_said_when_serving_goes_before_the_constructor() -> None:
    server = Server("s", apps="never")
    installed = server.extensions.values()
    settings = settings_for(stdio=True, ws=None, http=None, installed=installed, apps="always")
    assert settings.extensions == {BUILT_IN[0].id: {"apps": "always"}}
    serving.configure(server.extensions, settings.extensions)
    assert vars(server.extensions[BUILT_IN[0].id])["mode"] == "always"

    both = {BUILT_IN[0].id: {"strict_model_list": True}}
    settings = settings_for(stdio=True, ws=None, http=None, installed=installed, apps="auto", extensions=both)
    assert settings.extensions == {BUILT_IN[0].id: {"apps": "auto", "strict_model_list": True}}
    assert both == {BUILT_IN[0].id: {"strict_model_list": True}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"com.example/none": {"a": 1}}, "the server has no extension 'com.example/none'; it has io.modelcontext"),
        ({BUILT_IN[0].id: {"app": "never"}}, "has no option 'app' for serving; it has: apps, strict_model_list"),
        ({BUILT_IN[0].id: {"apps": "sometimes"}}, "apps must be auto, always or never, not 'sometimes'"),
    ],
)
def test_what_cannot_be_said_when_serving(given: dict[str, dict[str, Any]], said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        serving.configure(Server("s").extensions, given)


def test_run_refuses_what_neither_it_nor_an_extension_knows() -> None:
    with pytest.raises(TypeError, match=r"run\(\) has no option appz"):
        Server("s").run(appz="never")  # type: ignore[call-arg]
