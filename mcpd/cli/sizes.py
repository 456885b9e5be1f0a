"""Numbers of bytes on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mcpd.serve_options import parse_size

if TYPE_CHECKING:
    _IntType = click.ParamType[int]
else:
    _IntType = click.ParamType  # generic in newer versions only


class Size(_IntType):
    """Bytes, or with K, M or G behind it so many times 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return parse_size(str(value))
        except ValueError:
            self.fail(f"{value!r} is no size; write bytes, or for example 512M or 2G", param, ctx)
