"""`mcpd serve`: its options and its help."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from mcpd.cli.launch import launch
from mcpd.cli.options import extension_parameters, parameter, split_extensions, target_argument
from mcpd.server.extensions.builtin import BUILT_IN
from mcpd.server.extensions.serving import serve_options
from mcpd.server.settings import SECTIONS, Options, command_options

_HELP = """Serve TARGET to MCP clients until it is stopped. Several TARGETs are served as one server.

TARGET is a folder, file.py, package.module:object, or the command or package of a server that was installed with pip.
Without TARGET, mcpd serves the nearest folder, from here upwards, that has an mcpd.toml; otherwise this folder if it
contains tools, resources or prompts; otherwise the demo server. For a file with several servers, name one:
file.py:object. The object may also be a function that returns a server. With several TARGETs, the names of tools and
prompts begin with the name of their server, for example garden_water.

TARGET may also be a server of somebody else: a URL, a file with mcpServers (FILE.json, FILE.json:NAME), or a command
after --. A single one is passed through as it is; beside others it gets a prefix.

By default mcpd serves on stdio when a program starts it, and on --http :8080 in a terminal (on --ws :8080 if the http
extra is not installed).

\b
  mcpd serve --stdio server.py           what Claude Desktop and other hosts start
  mcpd serve --stdio ./garden            a folder: its functions are tools, its files are resources
  mcpd serve --stdio -- npx -y some-server    a command, and https://host/mcp or .mcp.json likewise
  mcpd serve --http :8080 server.py      http://127.0.0.1:8080/mcp, for this machine only; WebSocket too
  MCPD_TOKEN=… mcpd serve --http 0.0.0.0:8080 server.py    for other machines, which need the token
"""

_EPILOG = """\b
Further environment variables:
  MCPD_TOKEN              the bearer token; --token-file takes precedence
  MCPD_STATE_KEY          a secret of 16 bytes or more that signs data which clients carry and can read: session ids,
                          and the state of a request between its rounds. Use the same secret in all processes that
                          serve the same clients. Of several secrets, separated by commas, the first signs
{extensions}
The environment variable of an option that can be repeated holds its values separated by spaces.

\b
Log messages go to stderr. The first Ctrl-C or SIGTERM gives running calls --grace seconds to finish; the second one
ends mcpd at once. Exit codes: 0 stopped, 1 cannot serve, 2 wrong use.
""".replace("{extensions}", "\n".join(f"  {name:22}  {help}" for row in BUILT_IN for name, help in row.environment))


class ServeCommand(click.Command):
    """A command whose help has sections, and that leaves unknown options after TARGET to the target's extensions."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        if "--" in words:
            at = words.index("--")
            self.parse_args(ctx, words[:at])
            if ctx.params["target"] is not None or words[at + 1 :]:
                ctx.params["arguments"] = tuple(words[at + 1 :])
                return []

        try:
            ctx.allow_extra_args = True
            super().parse_args(ctx, args)
            if ctx.params["target"] is not None:  # otherwise there are no words left
                ctx.params["more_targets"], ctx.args = tuple(ctx.args), []
            return []
        except click.NoSuchOption:
            # The target may bring the option along, which is known once it is loaded.
            ctx.ignore_unknown_options = ctx.allow_extra_args = True
            super().parse_args(ctx, words)
            if (ctx.params["target"] or "-").startswith("-") or not ctx.args[0].startswith("-"):
                raise
            ctx.params["words"], ctx.args = tuple(ctx.args), []
            return []

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        help_all = click.Option(
            ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all_options,
            help="Show every option and exit.",
        )  # fmt: skip
        return [*super().get_params(ctx), help_all]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [option for option, _ in command_options().values()] + [each.option for each in serve_options()]
        known = {option.flag: option for option in options}
        others = [option.section for option in options if option.section not in SECTIONS]
        shown: dict[str, list[tuple[str, str]]] = {section: [] for section in (*SECTIONS[:-1], *others, SECTIONS[-1])}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx) if isinstance(each, click.Option) else None
            option = known.get(each.opts[0])
            if record is not None and (option is None or option.is_common or ctx.meta.get(_ALL)):
                shown[SECTIONS[-1] if option is None else option.section].append(record)

        for section, records in shown.items():
            if records:
                with formatter.section(section):
                    formatter.write_dl(records)


_ALL = f"{__name__}.all"


def _show_all_options(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


_DEFAULTS = Options()
_PARAMETERS: list[click.Parameter] = [
    target_argument(),
    *(parameter(name, option, kind, getattr(_DEFAULTS, name)) for name, (option, kind) in command_options().items()),
    *extension_parameters(serve_options()),
]


@click.command("serve", cls=ServeCommand, params=_PARAMETERS, help=_HELP, epilog=_EPILOG)
@click.pass_context
def serve_command(ctx: click.Context, /, **_: Any) -> int:
    return launch(options_of(ctx))


def options_of(ctx: click.Context) -> Options:
    """The options that were given on the command line and in the environment."""
    ours, extensions = split_extensions(ctx, serve_options())
    given = frozenset(name for name in ours if ctx.get_parameter_source(name) not in (None, ParameterSource.DEFAULT))
    return Options(**ours, extensions=extensions, given=given - {"target", "more_targets", "words", "arguments"})
