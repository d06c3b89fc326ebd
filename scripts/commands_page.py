"""Writes the reference part of docs/commands.md from the commands themselves: `python scripts/commands_page.py`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from topo_cli.main import COMMANDS, topo

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
MARK = "<!-- Generated from here on by scripts/commands_page.py; do not edit by hand. -->\n"


def commands() -> dict[str, click.Command]:
    """Return every command by its name, in the order of `topo --help`."""
    context = click.Context(topo, info_name="topo")
    found = {name: topo.get_command(context, name) for name in COMMANDS}
    return {name: command for name, command in found.items() if command is not None}


def reference() -> str:
    """Return what follows the mark: a section for each command."""
    return "\n".join([MARK, *(line for name, command in _with_subcommands() for line in _section(name, command))])


def _with_subcommands() -> Iterator[tuple[str, click.Command]]:
    for name, command in commands().items():
        if isinstance(command, click.Group):
            yield from ((f"{name} {part}", found) for part, found in command.commands.items())
        else:
            yield name, command


def page(text: str) -> str:
    """Return the page with its reference written anew; what is before the mark stays as it is."""
    written, mark, _ = text.partition(MARK)
    if not mark:
        raise SystemExit(f"{PAGE} has no line {MARK.strip()!r}, behind which the reference is written")
    return written + reference()


def _section(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"topo {name}")
    yield f"## topo {name}\n"
    yield "    " + " ".join([f"topo {name}", *command.collect_usage_pieces(context)]) + "\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield " ".join(paragraph.split()) + "\n"
    rows = [_row(option, context) for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if rows:
        yield "\n".join(["| option | meaning |", "| --- | --- |", *rows, ""])
    examples = [line for line in (command.epilog or "").splitlines() if line.startswith("  ")]
    if examples:
        yield "\n".join([*(f"    {line.strip()}" for line in examples), ""])


def _row(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    if isinstance(option.type, click.Choice):
        names += " " + " or ".join(f"`{choice}`" for choice in option.type.choices)
    elif not option.is_flag:
        names += f" {option.make_metavar(context).split()[0]}"
    default = f" Default: {option.default}." if option.show_default else ""
    often = " May be repeated." if option.multiple else ""
    return f"| {names} | {option.help}{default}{often} |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
