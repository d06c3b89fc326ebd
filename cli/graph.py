"""`topo graph`: a topology drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topo_cli.options import deadline_option, examples, topology_options

if TYPE_CHECKING:
    from topo.plan.physical import PhysicalPlan


@click.command(
    epilog=examples(
        "topo graph wordcount.py",
        "topo graph wordcount.py --format mermaid > wordcount.mmd",
        "topo graph word-count --format json | jq .components",
    )
)
@topology_options
@click.option(
    "--format", "form", type=click.Choice(["text", "mermaid", "json"]), default="text", show_default=True, help="How to draw it."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@deadline_option
def command(topology: str, home: Path, form: str, as_json: bool, deadline: float, **options: Any) -> None:
    """Draw TOPOLOGY: components, streams and groupings, and which worker hosts which task.

    TOPOLOGY is code, or the name of a submitted topology; of a running topology the figures are shown, too.
    """
    from topo.plan import describe
    from topo_cli.loader import plan_of

    is_varied = any(options[name] for name in ("parameters", "settings", "workers", "parallelism"))
    submitted = None if is_varied else _submitted(topology, home, deadline)
    plan, live = submitted or (plan_of(topology, **options), None)
    draw = {"text": describe.as_text, "mermaid": describe.as_mermaid, "json": describe.as_json}
    click.echo(draw["json" if as_json else form](plan, live), nl=False)


def _submitted(name: str, home: Path, deadline_s: float) -> tuple[PhysicalPlan, dict[str, dict[str, Any]] | None] | None:
    from topo.errors import NotFoundError, TopoError
    from topo.operate.topology_index import current_status
    from topo.storage.state_folder import StateFolder
    from topo.storage.submitted import SubmittedTopology
    from topo.user_code.copy import find_file, parse_reference

    try:
        folder = StateFolder(home).find(name)
        plan = SubmittedTopology.read(folder).plan
    except NotFoundError as unknown:
        try:
            find_file(parse_reference(name))
        except NotFoundError as error:
            if error.args[0].startswith("there is no module"):
                near = (*unknown.suggestions, *error.suggestions)
                raise NotFoundError(f"there is no module {name}, and no topology is called {name!r}.", near) from None
        return None
    try:
        return plan, _figures(current_status(folder, deadline_s))
    except TopoError:
        return plan, None


def _figures(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the figures to write beside each component, but for the ackers, which no topology declares."""
    found = {}
    for row in status["components"]:
        if row["kind"] != "acker":
            counters = {name: row["counters"].get(name, 0) for name in ("emitted", "executed", "failed")}
            found[row["component"]] = {**counters, "capacity": row["capacity"]}
    return found
