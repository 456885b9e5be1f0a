"""How an option is declared: every one can be set in the environment too, as MCPD_ and its name, and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from ..serve_options import SECTIONS, Option, command_options

__all__ = ["ServeCommand", "parameter", "target"]


def target() -> click.Argument:
    """The argument that names a server; without one it is the built-in starter."""
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
        how["type"] = _Size()
    elif float in kinds:
        how["type"] = _Seconds(min=0)
    elif int in kinds:
        how["type"] = click.IntRange(min=1)
    elif default == ():
        how["multiple"] = True
    if default:
        how |= {"default": default, "show_default": True}
    return click.Option([option.flag, name], help=option.help, envvar=option.environment, show_envvar=True, **how)


class _Seconds(click.FloatRange):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if seconds != seconds:
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return seconds


if TYPE_CHECKING:
    _IntType = click.ParamType[int]
else:
    _IntType = click.ParamType  # generic in newer versions only


class _Size(_IntType):
    """Bytes, or with K, M or G behind it so many times 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value).strip().upper().removesuffix("B").removesuffix("I")
        digits, unit = (text[:-1].strip(), text[-1:]) if text[-1:] in ("K", "M", "G") else (text, "")
        if not digits.isascii() or not digits.isdigit() or int(digits) < 1:
            self.fail(f"{value!r} is no size; write bytes, or for example 512M or 2G", param, ctx)
        return int(digits) * 1024 ** ("", "K", "M", "G").index(unit)


class ServeCommand(click.Command):
    """A command whose options are shown in the sections of the table."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = {option.flag: option.section for option, _ in command_options().values()}
        shown: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx) if isinstance(each, click.Option) else None
            if record is not None:
                shown[sections.get(each.opts[0], SECTIONS[-1])].append(record)
        for section, records in shown.items():
            with formatter.section(section):
                formatter.write_dl(records)
