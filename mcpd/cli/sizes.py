"""Numbers of bytes on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

__all__ = ["Size"]

if TYPE_CHECKING:
    _IntType = click.ParamType[int]
else:
    _IntType = click.ParamType  # generic in newer versions only


class Size(_IntType):
    """Bytes, or with K, M or G behind it so many times 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value).strip().upper().removesuffix("B").removesuffix("I")
        digits, unit = (text[:-1].strip(), text[-1:]) if text[-1:] in ("K", "M", "G") else (text, "")
        if not digits.isascii() or not digits.isdigit() or int(digits) < 1:
            self.fail(f"{value!r} is no size; write bytes, or for example 512M or 2G", param, ctx)
        return int(digits) * 1024 ** ("", "K", "M", "G").index(unit)
