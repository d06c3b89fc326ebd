"""`topo validate`: the mistakes in a topology."""

from __future__ import annotations

from typing import Any

import click

from topo_cli.exits import Exit
from topo_cli.options import examples, json_option, topology_options


@click.command(epilog=examples("topo validate wordcount.py", "topo validate package.module:topology -p path=in.txt -s workers=2"))
@topology_options
@json_option
def command(topology: str, home: object, as_json: bool, **options: Any) -> None:
    """Check TOPOLOGY without starting anything, and print all its mistakes; exits 2 if there are any."""
    from topo.errors import ConfigError, TopologyError
    from topo.plan.describe import placement_text
    from topo_cli.loader import plan_of
    from topo_cli.output import print_json

    problems: tuple[str, ...] = ()
    try:
        plan = plan_of(topology, **options)
    except TopologyError as error:
        problems = error.problems
    except ConfigError as error:
        problems = (str(error),)
    if as_json:
        print_json({"ok": not problems, "problems": list(problems)})
    elif problems:
        for problem in problems:
            click.echo(f"- {problem}")
    else:
        click.echo(f"{plan.name} is valid: {placement_text(plan)}, {plan.config.delivery}")
    if problems:
        raise SystemExit(Exit.USAGE)
