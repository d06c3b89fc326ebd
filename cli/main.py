"""The `topo` command: its subcommands, each imported when it is called."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from topo_cli.exits import Exit, Failed, exit_of
from topo_cli.foreign import foreign_topo
from topo_cli.standard_streams import open_closed_streams

if TYPE_CHECKING:
    from topo.launch.spares import EarlySpares

COMMANDS = {
    "run": "Run a topology here, until it ends or Ctrl-C.",
    "submit": "Start a topology in the background.",
    "resume": "Continue a topology whose master is gone.",
    "list": "List topologies.",
    "status": "Show the state of a topology.",
    "logs": "Show the output and the log of a topology's tasks.",
    "history": "Show the past figures of a topology.",
    "metrics": "Serve the figures of topologies to Prometheus.",
    "ui": "Serve the web page of all topologies.",
    "errors": "Show the errors of a topology.",
    "tap": "Show live tuples of a component.",
    "trace": "Show where the time of single messages goes.",
    "profile": "Show where the time of a component goes.",
    "log-level": "Change log levels of a running topology for a while.",
    "savepoint": "Store the state of a topology, to restore it later.",
    "rebalance": "Change the number of tasks of components.",
    "checkpoints": "Show the checkpoints of a topology.",
    "state": "Show the content of a checkpoint.",
    "dead-letters": "Show the messages that were given up, or emit them again.",
    "activate": "Let a paused topology's spouts emit again.",
    "deactivate": "Pause a topology's spouts.",
    "kill": "End a topology.",
    "validate": "Check a topology without starting it.",
    "graph": "Draw a topology.",
    "init": "Write a new project: a topology and a passing test.",
    "bench": "Measure throughput and latency.",
    "doctor": "Check that this machine can run topologies.",
    "version": "Print the versions in use.",
}


@contextmanager
def _unread_is_known() -> Iterator[None]:
    """Keep from click within the block that nothing reads the output any more: it would make that a failure like others."""
    try:
        yield
    except BrokenPipeError as error:
        raise SystemExit from error


class LazyGroup(click.Group):
    """A group that knows its commands by name and help, so that `topo --help` imports none of them."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _unread_is_known():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _unread_is_known():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            # Versions of click before 8.2 exit with 0 here.
            click.echo(ctx.get_help(), err=True)
            ctx.exit(Exit.USAGE)
        return super().parse_args(ctx, ["version", *args[1:]] if args[:1] == ["--version"] else args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if foreign := foreign_topo():
            raise Failed(foreign)
        module = import_module(f"topo_cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`topo --help` lists them."
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  topo init first && cd first && topo run wordcount.py
  topo run topologies/word_count.py -p path=some/folder
  topo submit topologies/top_n.py && topo status top-n --watch
""",
)
def topo() -> None:
    """Run topologies of spouts and bolts: every task a process, every message tracked.

    TOPOLOGY is path/to/file.py or package.module, optionally with :attribute; by default the attribute is `topology`.
    """


def main(arguments: Sequence[str] | None = None, early: EarlySpares | None = None) -> None:
    """Run the command line and exit: see `Exit` for the codes. `early` are for workers of `topo run`."""
    open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Output and exceptions of topologies may hold characters that the terminal's encoding lacks, or surrogates of file names.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = topo.main(args=arguments, prog_name="topo", standalone_mode=False, obj=early)
        sys.stdout.flush()
    except BaseException as error:
        code = exit_of(error)
    sys.exit(_number(code))


def _number(code: Any) -> int:
    return code if isinstance(code, int) else Exit.DONE
