"""`topo submit`: a topology in the background."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from topo_cli.options import (
    Duration,
    collect_settings,
    examples,
    json_option,
    spark_options,
    start_options,
    topology_options,
)

if TYPE_CHECKING:
    from topo.launch.spark.cluster import SparkCluster


@click.command(
    epilog=examples(
        "topo submit topologies/top_n.py -p seconds=600",
        "topo submit flights.py --from ~/savepoints/flights",
        "topo submit package.module --name nightly --workers 4 --wait",
        "topo submit topologies/top_n.py --master spark://host:7077 --slots 4",
    )
)
@topology_options
@spark_options
@start_options
@click.option("--wait", is_flag=True, help="Return when all tasks run.")
@click.option("--deadline", type=Duration(), default="60s", show_default=True, help="How long --wait waits.")
@json_option
def command(
    topology: str,
    parameters: tuple[tuple[str, str], ...],
    settings: tuple[tuple[str, str], ...],
    workers: int | None,
    parallelism: tuple[tuple[str, int], ...],
    start_from: str,
    drop_state: tuple[str, ...],
    resume: bool,
    name: str | None,
    home: Path,
    wait: bool,
    deadline: float,
    as_json: bool,
    cluster: SparkCluster | None,
    py_files: list[str],
) -> None:
    """Start TOPOLOGY in the background, where it goes on when this terminal is closed.

    Its code is copied first, so it may be edited while the topology runs. A name can be used by one topology at a time.
    With --master its workers run on the hosts of a Spark cluster; its topology master is Spark's driver, and runs here.
    """
    from topo.launch.cluster import is_done, submit_background
    from topo_cli.starting import report_started, talk_of_done, talk_of_spark

    if cluster is not None:
        talk_of_spark(cluster)
    running = submit_background(
        topology,
        name,
        dict(parameters),
        collect_settings(settings, workers, os.environ),
        home,
        start_from=start_from,
        drop_state=drop_state,
        cluster=cluster,
        parallelism=dict(parallelism),
        py_files=py_files,
        resume=resume,
    )
    if was_done := resume and is_done(running.folder):
        talk_of_done(running.name)
    report_started(running.folder, wait_s=deadline if wait else None, as_json=as_json, is_new=not was_done)
