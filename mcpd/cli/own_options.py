"""Options that extensions of a target bring with them: read behind TARGET and from the environment, once it is loaded.

`mcpd serve --help` cannot show them, as it loads no target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from mcpd.cli.options import extension_parameters, split_extensions
from mcpd.errors import ConfigurationError
from mcpd.serve_options import command_options
from mcpd.server.extensions.serving import ServeOption, serve_options


def read(found: Sequence[ServeOption], words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What was said to the target's own extensions, by their id.

    Raises click.UsageError for words that are none of their options, ConfigurationError for an option that two have.
    """
    ours = [option.flag for option, _ in command_options().values()]
    ours += [each.option.flag for each in serve_options()]
    taken = {"--help", *ours}
    for each in found:
        if each.option.flag in taken:
            raise ConfigurationError(
                f"extension {each.id}: there is an option {each.option.flag} already; give its own another flag"
            )
        taken.add(each.option.flag)

    command = click.Command("serve", params=extension_parameters(found), add_help_option=False)
    try:
        with command.make_context("serve", list(words)) as ctx:
            return split_extensions(ctx, found)[1]
    except click.NoSuchOption as error:
        # For a mistyped option of ours, which went to the target because it is none.
        command.params += [click.Option([flag]) for flag in ours]
        raise click.NoSuchOption(error.option_name, ctx=click.Context(command)) from None
