"""`topo resume`: continues a topology that has lost its master, or was drained or killed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from topo_cli.options import TimeSpan, examples, home_option, json_option, name_argument


@click.command(
    epilog=examples("topo resume word-count", "topo resume word-count --wait", "topo resume word-count --code word_count.py")
)
@name_argument
@click.option("--from-beginning", is_flag=True, help="Forget positions and checkpoints, and start from the beginning.")
@click.option("--code", metavar="FILE", help="Continue with this code: path[:attribute] or module, as for a submit.")
@click.option("--wait", is_flag=True, help="Return when all tasks run.")
@click.option("--deadline", type=TimeSpan(), default="60s", show_default=True, help="How long --wait waits.")
@home_option
@json_option
def command(name: str, from_beginning: bool, code: str | None, wait: bool, deadline: float, home: Path, as_json: bool) -> None:
    """Start a new master for topology NAME in the background. Its spouts continue after the last message that was done; with
    checkpoints the whole topology continues from the last one.

    It runs the code, the parameters and the settings of its last start; with --code other code, unless the stored state does not
    fit it: then nothing is started, and the error gives the reason. A topology with checkpoints that has processed all its
    input is done: nothing is started.
    """
    from topo.launch.cluster import resume_background, resume_with_code
    from topo.launch.running import is_done
    from topo.launch.submission import open_home
    from topo_cli.wait_for_start import naming_the_background, report_started, talk_of_done

    if code is not None and from_beginning:
        raise click.UsageError("--code continues; to start other code from the beginning, use `topo submit`")
    if was_done := not from_beginning and is_done(open_home(home).find(name)):
        talk_of_done(name)
    start = partial(resume_background, from_beginning=from_beginning) if code is None else partial(resume_with_code, code=code)
    with naming_the_background():
        running = start(name, home=home)
        report_started(running.folder, wait_s=deadline if wait else None, as_json=as_json, is_new=not was_done)
