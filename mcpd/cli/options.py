"""How an option is declared: every one can be set in the environment too, as MCPD_ and its name, and says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args, get_origin

import click
from click.core import ParameterSource

from mcpd.cli.sizes import Size
from mcpd.serve_options import SECTIONS, Option, command_options
from mcpd.server.extensions.serving import ServeOption, serve_options


def target() -> click.Argument:
    """The argument that names a server; without one it is the folder that this is in, or the demo server."""
    return click.Argument(["target"], required=False)


def parameter(name: str, option: Option, kind: Any, default: Any) -> click.Option:
    """An option as click's. `kind` is the type of its value, which goes to the command as `name`."""
    kinds = (kind, *get_args(kind))
    how: dict[str, Any] = {"metavar": option.metavar or None}
    if kind is bool:
        how = {"is_flag": True}
    elif option.choices:
        how["type"] = click.Choice(option.choices, case_sensitive=False)
    elif option.is_size:
        how["type"] = Size()
    elif float in kinds:
        how["type"] = _Seconds(min=0)
    elif int in kinds:
        how["type"] = click.IntRange(min=1)
    elif get_origin(kind) is tuple:
        how["multiple"] = True

    if default:
        how |= {"default": default, "show_default": True}
    return _Option([option.flag, name], help=option.help, envvar=option.environment, show_envvar=True, **how)


def extension_parameters(found: Iterable[ServeOption]) -> list[click.Parameter]:
    """The options of extensions, which have no default here: what is not said changes nothing."""
    return [parameter(each.name, each.option, each.kind, None) for each in found]


def split_extensions(
    ctx: click.Context, found: Iterable[ServeOption]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What was read, and apart from it what was said to extensions, by their id."""
    params = dict(ctx.params)
    said: dict[str, dict[str, Any]] = {}
    for each in found:
        value = params.pop(each.name)
        if ctx.get_parameter_source(each.name) is not ParameterSource.DEFAULT:
            said.setdefault(each.id, {})[each.name] = value
    return params, said


class _Option(click.Option):
    """Takes several values in its variable with commas or spaces between them."""

    def value_from_envvar(self, ctx: click.Context) -> Any:
        text = self.resolve_envvar_value(ctx)
        return text.replace(",", " ").split() if self.multiple and text is not None else super().value_from_envvar(ctx)


class _Seconds(click.FloatRange):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if seconds != seconds:
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return seconds


class ServeCommand(click.Command):
    """A command whose options are shown in the sections of the table, and that leaves options behind TARGET to it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        if "--" in words:
            at = words.index("--")
            self.parse_args(ctx, words[:at])
            if ctx.params["target"] is None and words[at + 1 :]:  # a command line, which begins with the target
                ctx.params["target"], at = words[at + 1], at + 1
            if ctx.params["target"] is not None:
                ctx.params["arguments"] = tuple(words[at + 1 :])
                return []

        try:
            ctx.allow_extra_args = True
            super().parse_args(ctx, args)
            if ctx.params["target"] is not None:  # no word is left without one
                ctx.params["more_targets"], ctx.args = tuple(ctx.args), []
            return []
        except click.NoSuchOption:
            # One that a target may bring: that shows when it is loaded, and nothing of it was, yet.
            ctx.ignore_unknown_options = ctx.allow_extra_args = True
            super().parse_args(ctx, words)
            if (ctx.params["target"] or "-").startswith("-") or not ctx.args[0].startswith("-"):
                raise
            ctx.params["words"], ctx.args = tuple(ctx.args), []
            return []

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = {option.flag: option.section for option, _ in command_options().values()}
        sections |= {each.option.flag: each.option.section for each in serve_options()}
        others = [section for section in sections.values() if section not in SECTIONS]
        shown: dict[str, list[tuple[str, str]]] = {section: [] for section in (*SECTIONS[:-1], *others, SECTIONS[-1])}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx) if isinstance(each, click.Option) else None
            if record is not None:
                shown[sections.get(each.opts[0], SECTIONS[-1])].append(record)
        for section, records in shown.items():
            with formatter.section(section):
                formatter.write_dl(records)
