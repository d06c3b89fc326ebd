"""What a topology of many tasks costs its topology master and its workers: messages, connections, processor time, memory.

    python -m benchmarks.many_tasks                       4 tasks in 2 workers, 40 in 4, 400 in 40
    python -m benchmarks.many_tasks --tasks 400 --workers 40 --json

The real master, its loop, and the real loops of the workers with all their tasks run in one process, on a manual clock and a
transport in memory. So counts are exact, and processor time is that of the code alone: there are no sockets, disks or other
processes in it. A topology of a spout, four bolts one behind the other with fields groupings, and ackers, with exactly_once,
goes through these phases:

    start       until all tasks run
    messages    every spout task emits 20 messages, through all bolts
    idle        ten seconds with nothing to do
    checkpoint  until one is complete, and published by every task
    recovery    a worker is killed: until all tasks run again, from the checkpoint
    end         a drain, until all workers have ended
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from typing import Any

from benchmarks.many_tasks_cluster import CHECKPOINT_S, MESSAGES, Cluster, Phase, many
from topo.ids import WorkerId
from topo.master.outcome import OutcomeKind

SIZES = ((4, 2), (40, 4), (400, 40))
PHASES = ("start", "messages", "idle", "checkpoint", "recovery", "end")
FLOW_S = 2.0
IDLE_S = 10.0


def measure(tasks: int, workers: int) -> tuple[dict[str, Phase], dict[str, Any]]:
    """Run a topology through all phases; return their figures, and those of the whole.

    Raises:
        AssertionError: a phase does not end, or messages are missing.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cluster = Cluster(many(tasks, workers))
    plan, phases = cluster.plan, dict[str, Phase]()
    with cluster.measured() as phases["start"]:
        cluster.begin()
        cluster.until(lambda: cluster.is_running)
    with cluster.measured() as phases["messages"]:
        cluster.until_time(FLOW_S)
    stages = [component for component in plan.components if component.id.startswith("pass")]
    assert cluster.executed("pass") == MESSAGES * len(plan.spouts) * len(stages), "messages are missing"
    with cluster.measured() as phases["idle"]:
        cluster.until_time(FLOW_S + IDLE_S)
    cluster.until_time(CHECKPOINT_S - 0.5)
    with cluster.measured() as phase:
        phases["checkpoint"] = phase
        cluster.until(lambda: cluster.complete == 1 and phase.to_master["CheckpointPublished"] == tasks - len(plan.ackers))
    connections = max(len(process.transport.outlets) for process in cluster.processes.values())
    with cluster.measured() as phases["recovery"]:
        cluster.kill(WorkerId(workers // 2))
        cluster.until(lambda: not cluster.is_running)
        cluster.until(lambda: cluster.is_running)
    cluster.until_time(cluster.clock() + FLOW_S)
    with cluster.measured() as phases["end"]:
        cluster.drain()
        cluster.until(lambda: cluster.outcome is not None)
    assert cluster.outcome is not None and cluster.outcome.kind is OutcomeKind.DRAINED, cluster.outcome
    whole = {
        "tasks": len(plan.tasks),
        "workers": len(plan.workers),
        "edges": len(plan.edges),
        "connections": connections,
        "memory_mb": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, 1),
    }
    return phases, whole


def as_data(phases: dict[str, Phase], whole: dict[str, Any]) -> dict[str, Any]:
    """Return the figures as JSON values."""
    return whole | {
        name: {
            "control_messages": phase.messages,
            "control_bytes": phase.bytes,
            "to_master": dict(phase.to_master.most_common()),
            "from_master": dict(phase.from_master.most_common()),
            "bytes_by_kind": dict((phase.bytes_to_master + phase.bytes_from_master).most_common()),
            "messages_between_workers": phase.frames,
            "bytes_between_workers": phase.frame_bytes,
            "rounds": phase.rounds,
            "master_ms": round(1000 * phase.master_s, 1),
            "worker_ms": round(1000 * phase.worker_s, 1),
            "longest_worker_ms": round(1000 * phase.longest_s, 1),
        }
        for name, phase in phases.items()
    }


def in_a_process(tasks: int, workers: int) -> dict[str, Any]:
    """Measure in another process, so that its peak memory is that of these tasks alone."""
    command = [sys.executable, "-m", "benchmarks.many_tasks", "--json", "--tasks", str(tasks), "--workers", str(workers)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def show(rows: list[dict[str, Any]]) -> None:
    """Print a table for each phase: a row a size."""
    for row in rows:
        connections = f"at most {row['connections']} connections from one, {row['memory_mb']} MB"
        print(f"{row['tasks']} tasks in {row['workers']} workers: {row['edges']:,} edges, {connections}")
    columns = ("control_messages", "control_bytes", "messages_between_workers", "master_ms", "worker_ms", "longest_worker_ms")
    print(f"\n{'':18}" + "".join(f"{name.replace('_', ' '):>26}" for name in columns))
    for phase in PHASES:
        for row in rows:
            print(f"{phase:<12}{row['tasks']:>6}" + "".join(f"{row[phase][name]:>26,}" for name in columns))
        kinds = {**rows[-1][phase]["from_master"], **rows[-1][phase]["to_master"]}
        print(f"{'':18}{', '.join(f'{kind} {count:,}' for kind, count in kinds.items())}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, help="one size alone")
    parser.add_argument("--workers", type=int, help="of that size")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.tasks is not None:
        rows = [as_data(*measure(options.tasks, options.workers or max(2, options.tasks // 10)))]
    else:
        rows = [in_a_process(tasks, workers) for tasks, workers in SIZES]
    if options.json:
        print(json.dumps(rows if options.tasks is None else rows[0]))
    else:
        show(rows)


if __name__ == "__main__":
    main()
