"""`topo submit`: a topology in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topo_cli.options import TimeSpan, examples, json_option, request_options, ui_option

if TYPE_CHECKING:
    from topo.launch.request import RunRequest


@click.command(
    epilog=examples(
        "topo submit topologies/top_n.py -p seconds=600",
        "topo submit flights.py --from ~/savepoints/flights",
        "topo submit package.module --name nightly --workers 4 --wait",
        "topo submit topologies/top_n.py --master spark://host:7077 --slots 4",
    )
)
@request_options
@ui_option
@click.option("--wait", is_flag=True, help="Return when all tasks run.")
@click.option("--deadline", type=TimeSpan(), default="60s", show_default=True, help="How long --wait waits.")
@json_option
def command(request: RunRequest, ui: bool, wait: bool, deadline: float, as_json: bool) -> None:
    """Start TOPOLOGY in the background, where it keeps running when this terminal is closed.

    Its code is copied first, so it may be edited while the topology runs. A name can be used by one topology at a time.
    With --master its workers run on the hosts of a Spark cluster; its topology master is Spark's driver, and runs here.
    """
    from topo.launch.cluster import submit_background
    from topo.launch.running import is_done
    from topo_cli.output import talk
    from topo_cli.wait_for_start import naming_the_background, report_started, talk_of_done, talk_of_spark

    if ui and request.home is not None:
        from topo.ui.child import PageProcess, check_extra

        # Before the topology starts, which would run behind the error.
        check_extra(request.home)
    if request.cluster is not None:
        talk_of_spark(request.cluster)
    with naming_the_background():
        running = submit_background(request)
        if ui and request.home is not None:
            talk(f"the page: {PageProcess.start(request.home, attached=False).link}")
        if was_done := request.resume and is_done(running.folder):
            talk_of_done(running.name)
        report_started(running.folder, wait_s=deadline if wait else None, as_json=as_json, is_new=not was_done)
