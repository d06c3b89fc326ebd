"""`topo bench`: throughput, latency, CPU time and memory of a workload."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from topo_cli.options import Number, Setting, TimeSpan, examples, json_option, parameter_option

if TYPE_CHECKING:
    from topo.launch.running import RunningTopology
    from topo.observability.status import StatusReport
    from topo_cli.measurement import Counts, Processes

BUILT_IN = {"word-count": "word_count", "pipe": "pipe", "windowed-sum": "windowed_sum"}
"""The functions of `topo_cli.workloads` by the names of what they build."""
_STAGED = ("word-count", "windowed-sum")
_COUNTED = {"word-count": ("count", "words"), "windowed-sum": ("sum", "events")}
"""The component whose inputs a workload counts, and their unit."""
_PACED = ("word-count", "pipe")

LOOK_S = 0.25
SLACK_S = 3.0
"""How long a built-in spout emits beyond the measured time: the heartbeats at both ends come late."""
HEARTBEAT_S = 1.2
"""The time of a heartbeat, and some."""
_SETTINGS = {"ackers": "ackers", "workers": "workers", "batch": "batch_size", "max_pending": "max_spout_pending"}


@click.command(
    epilog=examples(
        "topo bench word-count --splits 1 --counts 1 --ackers 1",
        "topo bench word-count --splits 3 --counts 3 --workers 2 --json",
        "topo bench word-count --batches 1024",
        "topo bench windowed-sum --splits 2 --counts 2",
        "topo bench pipe --rate 1000 --seconds 20",
        "topo bench path/to/topology.py -p path=some/folder --seconds 30",
    )
)
@click.argument("name", metavar="NAME")
@click.option("--seconds", type=TimeSpan(), default="10s", show_default=True, help="How long to measure.")
@click.option("--warm-up", type=TimeSpan(), default="2s", show_default=True, help="How long to run before that.")
@click.option(
    "--rate",
    type=Number(min=0, max=1e9, min_open=True),
    help="Messages a second, for latency; default: as many as possible.",
)
@click.option("--splits", type=click.IntRange(min=1), help="Tasks that split, in word-count, or parse, in windowed-sum.")
@click.option("--counts", type=click.IntRange(min=1), help="Tasks that count, in word-count, or sum, in windowed-sum.")
@click.option("--batches", type=click.IntRange(min=1), help="Sentences in a batch of columns, in word-count; needs pyarrow.")
@click.option("--ackers", type=click.IntRange(min=0), help="Acker tasks; 0 switches tracking off.")
@click.option("--workers", type=click.IntRange(min=1), help="Number of processes that the tasks are packed into.")
@click.option("--batch", type=click.IntRange(min=1), help="Tuples of a full batch.")
@click.option("--max-pending", type=click.IntRange(min=1), help="Messages that the spout may have in flight.")
@click.option(
    "--delivery",
    type=click.Choice(["at_least_once", "at_most_once", "exactly_once"]),
    help="The mode, for word-count and windowed-sum.",
)
@click.option("--transport", type=click.Choice(["ipc", "tcp"]), help="The transport between workers.")
@click.option("-s", "--setting", "settings", type=Setting(), multiple=True, help="Any other setting.")
@parameter_option
@json_option
def command(
    name: str,
    seconds: float,
    warm_up: float,
    rate: float | None,
    splits: int | None,
    counts: int | None,
    batches: int | None,
    delivery: str | None,
    settings: tuple[tuple[str, str], ...],
    parameters: tuple[tuple[str, str], ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Measure NAME: `word-count`, `pipe`, `windowed-sum`, or any topology.

    Without --rate the spout emits as fast as it can, and the rates of messages and tuples are measured after a warm-up;
    latency_ms is then the time from emit to ack under full load, measured from the start and exact to 19 %.

    With --rate, for the built-in workloads, the spout emits on a schedule. latency_ms is the time from the moment at which a
    message was due to its arrival at the last bolt, and ack_latency_ms the time to its ack at the spout. A message that is
    emitted late is measured from the moment at which it was due.

    CPU seconds are of the measured time and of all processes together; peak memory is that of the largest process.

    word-count ends with a check: the words counted must be ten times the sentences acked, else the exit code is 1. With
    --batches a message is a batch of that number of sentences, as Arrow arrays: messages and tuples are batches then.

    windowed-sum sums up JSON events by key in windows of ten seconds of event time; windows and late events must add up to all
    that the spout emitted. It has no --rate: an event is acked when its window is over.
    """
    from topo_cli.exits import Failed
    from topo_cli.output import print_json, talk

    if seconds <= 0:
        raise click.UsageError("--seconds is more than 0: rates need a time that they are measured in")
    chosen = {setting: options[option] for option, setting in _SETTINGS.items() if options[option] is not None}
    if options["transport"]:
        chosen["transport"] = options["transport"]
    chosen = {**dict(settings), **chosen}
    arguments: dict[str, Any] = dict(parameters)
    tasks = {option: number for option, number in (("splits", splits), ("counts", counts)) if number is not None}
    _check_options(name, tasks, delivery, batches, rate)
    reference = _reference_of(name, batches)
    if name in BUILT_IN:
        arguments |= tasks | {"seconds": warm_up + seconds + SLACK_S} | ({"delivery": delivery} if delivery else {})
        if batches:
            arguments["batches"] = batches
        elif name in _PACED:
            arguments["rate"] = rate or 0.0
    with TemporaryDirectory(prefix="topo-bench-", ignore_cleanup_errors=True) as scratch:
        samples = Path(scratch, "samples")
        samples.mkdir()
        if rate:
            arguments["samples"] = str(samples)
        result, problem = _measure(name, reference, arguments, chosen, warm_up, seconds, Path(scratch))
        if rate:
            result |= _open_loop_latencies(samples, warm_up)
    if as_json:
        print_json(result)
    else:
        _print(result)
    if problem:
        raise Failed(problem)
    if not result["measured_seconds"]:
        ended = f"{Path(name).name} ended before its warm-up was over"
        talk(f"{ended}: nothing was measured; give it more input, or a shorter --warm-up")


def _check_options(name: str, tasks: Mapping[str, int], delivery: str | None, batches: int | None, rate: float | None) -> None:
    """Refuse options that a workload has no use for."""
    if tasks and name not in _STAGED:
        raise click.UsageError(f"--{next(iter(tasks))} is for {' and '.join(_STAGED)} alone")
    if delivery and name not in _STAGED:
        raise click.UsageError(f"--delivery is for {' and '.join(_STAGED)} alone; elsewhere the topology sets it")
    if batches and (name != "word-count" or rate):
        raise click.UsageError("--batches is for word-count alone, without --rate: it has no moments at which a message is due")
    if rate and name not in _PACED:
        raise click.UsageError(f"--rate is for {' and '.join(_PACED)} alone: only they know when a message was due")


def _reference_of(name: str, batches: int | None) -> str:
    """Return the code of a workload. Raises NotFoundError for the misspelt name of a built-in one."""
    from topo.errors import NotFoundError
    from topo.storage.state_folder import near_misses
    from topo.user_code.copy import find_file, parse_reference
    from topo_cli import batch_workloads, workloads

    if name not in BUILT_IN and (meant := near_misses(name, BUILT_IN)):
        try:
            find_file(parse_reference(name))
        except NotFoundError:
            raise NotFoundError(f"there is no workload {name!r}.", meant) from None
    if name not in BUILT_IN:
        return name
    module, function = (batch_workloads, "word_count") if batches else (workloads, BUILT_IN[name])
    return f"{Path(module.__file__).absolute()}:{function}"


def _measure(
    name: str,
    reference: str,
    arguments: Mapping[str, Any],
    settings: Mapping[str, Any],
    warm_up_s: float,
    seconds: float,
    home: Path,
) -> tuple[dict[str, Any], str]:
    """Run the workload; return the figures, and the problem at its end or ""."""
    from topo.launch.local_cluster import LocalCluster
    from topo_cli.measurement import Counts, Processes

    measured = Counts()
    processes = Processes()
    with LocalCluster(home) as cluster:
        running = cluster.submit(reference, parameters=arguments, settings=settings)
        since = _watch(running, measured, processes, warm_up_s, seconds)
        if name not in BUILT_IN and running.outcome() is None:
            last = running.status()
            running.kill()
            running.wait()
            problem = ""
        else:
            outcome = running.wait()
            last = running.summary()
            problem = "" if outcome.exit_code == 0 else f"{name} ended badly: {outcome.reason}"
    if name == "word-count":
        problem = problem or _miscount(last, arguments.get("batches", 1))
    if name == "windowed-sum":
        problem = problem or _wrong_sum(last)
    until = since + seconds + HEARTBEAT_S
    return _figures(name, last, measured, processes, since, until), problem


def _watch(running: RunningTopology, counts: Counts, processes: Processes, warm_up_s: float, seconds: float) -> float:
    """Sample the topology for warm-up and measured time; return the time at which the warm-up was over."""
    from topo.master_process.client import AnswerTimeout, Unreachable

    since: float | None = None
    while running.outcome() is None:
        try:
            status = running.status()
        except (Unreachable, AnswerTimeout):
            time.sleep(LOOK_S)
            continue
        now = time.monotonic()
        counts.add(status, now)
        processes.look(status, now)
        if since is None and status["totals"]["emitted"]:
            since = now + warm_up_s
        if since is not None and now >= since + seconds + HEARTBEAT_S + LOOK_S:
            break
        time.sleep(LOOK_S)
    return time.monotonic() if since is None else since


def _figures(name: str, status: StatusReport, counts: Counts, processes: Processes, since: float, until: float) -> dict[str, Any]:
    from topo.hot import KIND
    from topo_cli.measurement import MEGABYTE

    kinds = {component["component"]: component["kind"] for component in status["components"]}
    of_kind = {
        kind: [task["task"] for task in status["tasks"] if kinds[task["component"]] == kind]
        for kind in ("spout", "bolt", "acker")
    }
    acked = counts.growth(of_kind["spout"], "acked", since, until)
    executed = counts.growth(of_kind["bolt"], "executed", since, until)
    used = {pid: usage.cpu_growth(since, until) for pid, usage in processes.usage.items()}
    cpu_share = sum(growth.per_second for growth in used.values())
    measured_s = acked.seconds or executed.seconds
    latency = status["totals"]["complete_latency_s"] or {}
    result: dict[str, Any] = {
        "workload": name,
        "acked_per_second": round(acked.per_second, 1),
        "tuples_per_second": round(executed.per_second, 1),
    }
    if name in _COUNTED:
        component, what = _COUNTED[name]
        tasks = [task["task"] for task in status["tasks"] if task["component"] == component]
        # A batch is one input.
        growth = [counts.growth(tasks, counter, since, until) for counter in ("batch_rows_in", "executed")]
        result[f"{what}_per_second"] = round((growth[0] if growth[0].amount else growth[1]).per_second, 1)
    return result | {
        "latency_ms": {rank: _rounded(latency.get(rank)) for rank in ("p50", "p99", "p999")},
        "cpu_seconds": round(cpu_share * measured_s, 2),
        "cpu_us_per_tuple": round(cpu_share / executed.per_second * 1e6, 3) if executed.per_second else None,
        "peak_rss_mb": round(max((usage.peak_bytes for usage in processes.usage.values()), default=0) / MEGABYTE, 1),
        "measured_seconds": round(measured_s, 2),
        "workers": len(status["workers"]),
        "ackers": len(of_kind["acker"]),
        "tasks": len(status["tasks"]),
        "emitted": status["totals"]["emitted"],
        "acked": status["totals"]["acked"],
        "failed": status["totals"]["failed"] + status["totals"]["timed_out"],
        "restarts": status["restarts"],
        "hot_path": KIND,
        "processes": [
            {
                "runs": usage.label,
                "cpu_seconds": round(used[pid].per_second * measured_s, 2),
                "peak_rss_mb": round(usage.peak_bytes / MEGABYTE, 1),
            }
            for pid, usage in processes.usage.items()
        ],
    }


def _rounded(duration_s: float | None) -> float | None:
    return None if duration_s is None else round(duration_s * 1e3, 3)


def _miscount(status: StatusReport, sentences: int = 1) -> str:
    """Return the mistake in the number of counted words; "" when it is right. Each message has that number of sentences."""
    from topo_cli.workloads import WORDS_PER_SENTENCE

    words = sum(row["user"]["counters"].get("words", 0) for row in status["components"] if row["component"] == "count")
    acked = status["totals"]["acked"] * sentences
    if words == WORDS_PER_SENTENCE * acked:
        return ""
    return f"{words:,} words were counted, but {acked:,} sentences of {WORDS_PER_SENTENCE} words were acked"


def _wrong_sum(status: StatusReport) -> str:
    """Return the mistake in the sums of windows and late events; "" when they are right, or when events were replayed."""
    sums = {row["component"]: row["user"]["counters"].get("sum", 0) for row in status["components"]}
    found = sums["sink"] + sums["late"]
    if found == sums["spout"] or status["totals"]["failed"] + status["totals"]["timed_out"]:
        return ""
    return f"windows and late events add up to {found:,}, but {sums['spout']:,} was emitted"


def _open_loop_latencies(folder: Path, warm_up_s: float) -> dict[str, Any]:
    """Return the latencies that the spout and the last bolt have left."""
    from topo_cli.measurement import percentiles
    from topo_cli.workloads import read_latencies

    to_ack: list[float] = []
    to_sink: list[float] = []
    for file in folder.iterdir():
        (to_ack if file.name.startswith("spout-") else to_sink).extend(read_latencies(file, warm_up_s))
    found = {"latency_ms": percentiles(to_sink), "ack_latency_ms": percentiles(to_ack)}
    return {
        name: {rank: None if value is None else round(value, 3) for rank, value in ranks.items()} for name, ranks in found.items()
    }


def _print(result: Mapping[str, Any]) -> None:
    from topo_cli.output import count, plural

    tasks, workers, ackers = (plural(result[f"{word}s"], word) for word in ("task", "worker", "acker"))
    click.echo(f"{result['workload']}: {tasks} in {workers}, {ackers}")
    click.echo(f"  messages acked       {count(result['acked_per_second'])}/s over {result['measured_seconds']:g} s")
    click.echo(f"  tuples executed      {count(result['tuples_per_second'])}/s")
    if "words_per_second" in result:
        click.echo(f"  words counted        {count(result['words_per_second'])}/s")
    if "events_per_second" in result:
        click.echo(f"  events summed        {count(result['events_per_second'])}/s")
    is_open = "ack_latency_ms" in result
    click.echo(f"  {'due to last bolt' if is_open else 'emit to ack':<20} {_ranks(result['latency_ms'])}")
    if is_open:
        click.echo(f"  {'due to ack':<20} {_ranks(result['ack_latency_ms'])}")
    click.echo(f"  CPU                  {result['cpu_seconds']:g} s" + _per_tuple(result["cpu_us_per_tuple"]))
    click.echo(f"  peak memory          {result['peak_rss_mb']:g} MB in one process")
    for process in result["processes"]:
        used = f"{process['cpu_seconds']:>8.2f} s CPU {process['peak_rss_mb']:>8.1f} MB"
        click.echo(f"    {used}  {process['runs']}")


def _per_tuple(microseconds: float | None) -> str:
    return "" if microseconds is None else f", {microseconds:.2f} us a tuple"


def _ranks(ranks: Mapping[str, float | None]) -> str:
    return "  ".join(f"{name} {'-' if value is None else f'{value:.3g} ms'}" for name, value in ranks.items())
