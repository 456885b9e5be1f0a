"""msgspec's hooks as its decoders and encoders are given them, for types that it does not know.

What they do is in `msgspec_hooks`, which is loaded when msgspec asks for the first time: most servers' types it knows.
"""

from __future__ import annotations

from typing import Any

import msgspec


def dec_hook(kind: Any, value: Any) -> Any:
    """Make a `kind` of decoded JSON. ValueError, with a text for the model, if it does not fit."""
    from mcpd.registry import msgspec_hooks  # noqa: PLC0415

    return msgspec_hooks.dec_hook(kind, value)


def output_hook(kind: Any, value: Any) -> Any:
    """`dec_hook` for a check of what goes out. ValueError if it does not fit."""
    from mcpd.registry import msgspec_hooks  # noqa: PLC0415

    return msgspec_hooks.output_hook(kind, value)


def enc_hook(value: Any) -> Any:
    """What msgspec writes for a value it does not know. TypeError if there is nothing sensible."""
    from mcpd.registry import msgspec_hooks  # noqa: PLC0415

    return msgspec_hooks.enc_hook(value)


def to_builtins(value: Any) -> Any:
    """`value` as what JSON has: None, bool, int, float, str, list, dict with string keys."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=enc_hook)
