"""How an option is declared: every one can be set in the environment too, as MCPD_ and its name, and says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

__all__ = ["choice", "flag", "number", "option", "seconds", "size"]

F = TypeVar("F", bound=Callable[..., Any])


def option(name: str, metavar: str, help: str, **how: Any) -> Callable[[F], F]:
    """`--name METAVAR`. `how` is click's, such as `default`, which is shown, and `multiple`."""
    shown = "default" in how
    return click.option(name, metavar=metavar, help=help, show_default=shown, **_in_environment(name), **how)


def flag(name: str, help: str) -> Callable[[F], F]:
    """`--name`, which is either there or not."""
    return click.option(name, is_flag=True, help=help, **_in_environment(name))


def choice(name: str, metavar: str, choices: Sequence[str], help: str, **how: Any) -> Callable[[F], F]:
    """`--name METAVAR` with one of some words, in any case."""
    return option(name, metavar, help, type=click.Choice(choices, case_sensitive=False), **how)


def seconds(name: str, default: float, help: str) -> Callable[[F], F]:
    """`--name SECONDS`, 0 or more."""
    return option(name, "SECONDS", help, type=_Seconds(min=0), default=default)


class _Seconds(click.FloatRange):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if seconds != seconds:
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return seconds


def number(name: str, metavar: str, default: int, help: str) -> Callable[[F], F]:
    """`--name METAVAR`, a whole number, 1 or more."""
    return option(name, metavar, help, type=click.IntRange(min=1), default=default)


def size(name: str, help: str) -> Callable[[F], F]:
    """`--name SIZE`, bytes, or with K, M or G behind it so many times 1024; without a default."""
    return option(name, "SIZE", help, type=_Size())


if TYPE_CHECKING:
    _IntType = click.ParamType[int]
else:
    _IntType = click.ParamType  # generic in newer versions only


class _Size(_IntType):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value).strip().upper().removesuffix("B").removesuffix("I")
        digits, unit = (text[:-1].strip(), text[-1:]) if text[-1:] in ("K", "M", "G") else (text, "")
        if not digits.isascii() or not digits.isdigit() or int(digits) < 1:
            self.fail(f"{value!r} is no size; write bytes, or for example 512M or 2G", param, ctx)
        return int(digits) * 1024 ** ("", "K", "M", "G").index(unit)


def _in_environment(name: str) -> dict[str, Any]:
    return {"envvar": f"MCPD_{name.lstrip('-').replace('-', '_').upper()}", "show_envvar": True}
