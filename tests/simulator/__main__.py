"""`python -m tests.simulator`: replays the run of a seed.

python -m tests.simulator --seed 7            the topology, its faults, the outcome, the violations
python -m tests.simulator --seed 7 --trace    and before that every event
python -m tests.simulator --seed 7 --exactly-once    a topology with checkpoints; its seeds are others
python -m tests.simulator --seed 7 --savepoints    the same topology, and savepoints are asked for
python -m tests.simulator --seed 7 --streams    a program of streams; its seeds are others
python -m tests.simulator --seed 7 --keyed-streams    likewise, with results that show their records
python -m tests.simulator --seed 7 --tracked-streams    a program of streams with at_least_once; likewise
"""

from __future__ import annotations

import argparse
from typing import Any

from tests.simulator.keyed_stream_scenarios import draw_keyed_stream_scenario
from tests.simulator.random_checkpoint_scenarios import draw_checkpoint_scenario, draw_savepoint_scenario
from tests.simulator.random_scenarios import draw_scenario
from tests.simulator.stream_scenarios import draw_stream_scenario
from tests.simulator.tracked_streams import draw_tracked_streams


def main(arguments: list[str] | None = None) -> int:
    """Replay the run of one seed; 0 when no oracle was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description="Replay a simulated run.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--trace", action="store_true", help="show everything that happened")
    parser.add_argument("--exactly-once", action="store_true", help="a topology with checkpoints")
    parser.add_argument("--savepoints", action="store_true", help="likewise, with savepoints")
    parser.add_argument("--streams", action="store_true", help="a program of streams, with checkpoints")
    parser.add_argument("--keyed-streams", action="store_true", help="likewise, whose results show their records")
    parser.add_argument("--tracked-streams", action="store_true", help="a program of streams, with at_least_once")
    options = parser.parse_args(arguments)
    draws: dict[str, Any] = {
        "tracked_streams": draw_tracked_streams, "keyed_streams": draw_keyed_stream_scenario,
        "streams": draw_stream_scenario, "savepoints": draw_savepoint_scenario,
        "exactly_once": draw_checkpoint_scenario,
    }  # fmt: skip
    draw = next((draw for name, draw in draws.items() if getattr(options, name)), draw_scenario)
    scenario = draw(options.seed)
    run = scenario.run(keeps_trace=options.trace)
    for line in run.simulation.trace_lines:
        print(line)
    print(scenario.describe())
    for at, fault, victim in run.simulation.strikes.struck:
        print(f"  {at:.6f} s: {fault} -> {victim}")
    print(run.summary())
    for violation in run.violations:
        print(f"VIOLATION {violation}")
    return 1 if run.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
