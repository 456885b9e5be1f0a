"""Options for click that can also be set in the environment, made from the table in `server.settings`.

`mcpd serve` uses most of them; `read_own_options` reads the options of extensions that the target brings along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_origin

import click
from click.core import ParameterSource

from mcpd.errors import ConfigurationError
from mcpd.server.extensions.serving import ServeOption, serve_options
from mcpd.server.settings import Option, command_options, parse_size

if TYPE_CHECKING:
    _IntType = click.ParamType[int]
else:
    _IntType = click.ParamType  # generic in newer versions only


def target_argument() -> click.Argument:
    """The argument TARGET; without it a command uses the current folder or the demo server."""
    return click.Argument(["target"], required=False)


def parameter(name: str, option: Option, kind: Any, default: Any) -> click.Option:
    """The click option for `option`. Its value has the type `kind`, and the command receives it as `name`."""
    kinds = (kind, *get_args(kind))
    how: dict[str, Any] = {"metavar": option.metavar or None}
    if kind is bool:
        how = {"is_flag": True}
    elif option.choices:
        how["type"] = click.Choice(option.choices, case_sensitive=False)
    elif option.is_size:
        how["type"] = Size()
    elif float in kinds:
        how["type"] = _Seconds()
    elif int in kinds:
        how["type"] = click.IntRange(min=1)
    elif get_origin(kind) is tuple:
        how["multiple"] = True

    help = option.help
    if default:
        how["default"] = default
        help = f"{help} Default: {_shown(default, option)}."
    return _Option([option.flag, name], help=help, envvar=option.environment, show_envvar=True, **how)


def _shown(default: Any, option: Option) -> str:
    """A default in the unit that people use, such as `30 min` or `64 MiB`."""
    if option.is_size:
        for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
            if default >= 1 << power:
                return f"{default / (1 << power):g} {unit}"
    if isinstance(default, float):
        return f"{default:g} s" if default < 60 else f"{default / 60:g} min"
    return str(default)


class _Option(click.Option):
    """An option whose environment variable may hold several values, separated by commas or spaces."""

    def value_from_envvar(self, ctx: click.Context) -> Any:
        text = self.resolve_envvar_value(ctx)
        return text.replace(",", " ").split() if self.multiple and text is not None else super().value_from_envvar(ctx)


class _Seconds(click.FloatRange):
    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if seconds != seconds:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


class Size(_IntType):
    """A number of bytes; K, M or G after it multiplies by 1,024 once, twice or three times."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return parse_size(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a size; write bytes, or for example 512M or 2G", param, ctx)


# ------------------------------------------------------------------------------- of extensions


def extension_parameters(found: Iterable[ServeOption]) -> list[click.Parameter]:
    """The click options of extensions. They have no defaults here, so that an extension only sees given values."""
    return [parameter(each.name, each.option, each.kind, None) for each in found]


def split_extensions(
    ctx: click.Context, found: Iterable[ServeOption]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The parameters of a command, and separately the given options of extensions by extension id."""
    params = dict(ctx.params)
    given: dict[str, dict[str, Any]] = {}
    for each in found:
        value = params.pop(each.name)
        if ctx.get_parameter_source(each.name) is not ParameterSource.DEFAULT:
            given.setdefault(each.id, {})[each.name] = value
    return params, given


def read_own_options(found: Sequence[ServeOption], words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read the options of the target's own extensions from `words` and the environment, by extension id.

    `mcpd serve --help` cannot show these options, because it does not load the target. Raises click.UsageError for
    unknown options, ConfigurationError if two extensions have the same option.
    """
    ours = [option.flag for option, _ in command_options().values()]
    ours += [each.option.flag for each in serve_options()]
    taken = {"--help", "--help-all", *ours}
    for each in found:
        if each.option.flag in taken:
            raise ConfigurationError(
                f"extension {each.id}: the option {each.option.flag} exists already; give it another name"
            )
        taken.add(each.option.flag)

    command = click.Command("serve", params=extension_parameters(found), add_help_option=False)
    try:
        with command.make_context("serve", list(words)) as ctx:
            return split_extensions(ctx, found)[1]
    except click.NoSuchOption as error:
        # Suggest options of mcpd too: a mistyped one was taken for an option of the target.
        command.params += [click.Option([flag]) for flag in ours]
        raise click.NoSuchOption(error.option_name, ctx=click.Context(command)) from None
