"""`mcpd trace -- COMMAND`, and `mcpd trace show`, which `trace_show` does."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mcpd.cli.sizes import Size
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

_HELP = """Stand between a host and the server that it starts, and write to a file what they say to each other.

In the host's configuration put `mcpd trace --` before the server's command: as `command` the path of mcpd, as first
`args` "trace" and "--", then what was there. Both directions pass unchanged and at once; stderr, signals, the end of
stdin and the exit code too. A server that cannot be started gives 127 or 126.

\b
  mcpd trace -- npx -y some-server                     to a file in your state folder, which stderr names
  mcpd trace --file /tmp/t.jsonl -- python server.py
  mcpd trace show                                      the newest of them, a line for each message
  mcpd trace show --errors /tmp/t.jsonl                what went wrong

The file is yours alone (0600), and holds what you asked and what you got. Tokens and passwords in it are masked if
they stand under a name that says so: read it before you give it away.
"""

_EPILOG = """\b
The file is JSON Lines; docs/tracing.md has the format. A full file becomes FILE.1, in place of the one before.
In the state folder the newest 20 are kept.
"""


class _Trace(click.Group):
    """Words behind `--` are the server's command, whatever they look like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args and not self._names_command(args[: args.index("--")]):
            at = args.index("--")
            ctx.obj = tuple(args[at + 1 :])
            rest = click.Command.parse_args(self, ctx, args[:at])
            if rest or not ctx.obj:
                text = f"{rest[0]!r} stands before --" if rest else "no command behind --"
                raise click.UsageError(f"{text}; write mcpd trace -- COMMAND, with the server's command", ctx)
            return rest

        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["show"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != "show":
            return None
        from mcpd.cli.trace_show import show  # a host that waits for its server needs nothing of it

        return show

    def _names_command(self, words: list[str]) -> bool:
        return words[:1] == ["show"]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "show":
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"put -- before the server's command: mcpd trace -- {printable(' '.join(args))}", ctx)


@click.group(
    "trace",
    cls=_Trace,
    help=_HELP,
    epilog=_EPILOG,
    invoke_without_command=True,
    params=[
        click.Option(["--file"], metavar="FILE", help="Write to this file, behind what is there."),
        click.Option(
            ["--max-size"], type=Size(), default="64M", show_default=True, metavar="SIZE",
            help="A larger file becomes FILE.1.",
        ),
        click.Option(
            ["--max-message"], type=Size(), default="1M", show_default=True, metavar="SIZE",
            help="Of a larger message only so much is written.",
        ),
        click.Option(["--secrets"], is_flag=True, help="Write tokens and passwords as they are."),
    ],
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, file: str | None, max_size: int, max_message: int, secrets: bool) -> int:
    words: tuple[str, ...] = ctx.obj or ()
    if ctx.invoked_subcommand is not None:
        return 0
    if not words:
        raise click.UsageError("no command; write mcpd trace -- COMMAND, or mcpd trace show", ctx)
    return _trace(words, file, max_size, max_message, secrets)


def _trace(words: tuple[str, ...], file: str | None, max_size: int, max_message: int, secrets: bool) -> int:
    try:
        from mcpd.trace.proxy import Guardian, end_like, run
    except ImportError as error:
        raise ConfigurationError(f"mcpd trace cannot run on this system: {error}") from error
    from mcpd.trace.reading import new_default_path
    from mcpd.transports.recorder import Recorder, Recording, TraceFile

    opened = TraceFile(new_default_path(words[0]) if file is None else Path(file), max_size)
    if file is None or opened.path != Path(file).absolute():
        _say(f"what passes is written to {printable(opened.path, 1000)}")

    guardian = Guardian()  # before there are threads
    recording = Recording(max_bytes=max_message, shows_secrets=secrets)
    recorder = Recorder(opened, words, recording, complain=_say)
    try:
        code = run(words, recorder, guardian)
    finally:
        recorder.close()
        guardian.close()
    return end_like(code)


def _say(text: str) -> None:
    try:
        print(f"mcpd trace: {text}", file=sys.stderr, flush=True)
    except OSError:
        pass
