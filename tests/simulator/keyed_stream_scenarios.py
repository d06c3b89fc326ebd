"""Programs of streams with checkpoints whose results show what they were made of, and how a seed draws one; some publish them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.simulator import checkpointed_sinks, checkpointed_sources
from tests.simulator.chained_scenarios import draw_settings, draw_spout
from tests.simulator.checkpointed_sources import JITTER_MS, Source
from tests.simulator.checkpointed_stages import Beyond, Mishaps
from tests.simulator.faults import draw_checkpoint_faults
from tests.simulator.keyed_programs import KEYED_PROGRAMS, KeyedProgram, draw_program
from tests.simulator.random_checkpoint_scenarios import draw_rescaled
from tests.simulator.savepoints import draw_requests
from tests.simulator.stream_scenarios import LOG, PROGRAM, StreamScenario
from tests.simulator.topologies import Part


class KeyedStreamScenario(StreamScenario):
    """A program, its settings and its faults."""

    @property
    def _program(self) -> KeyedProgram:
        made: KeyedProgram = self.parts[2].make(Beyond())
        return made

    def given(self, name: str, expected: Any, found: Any) -> Any:
        return self._judged(found, found)

    def published(self, expected: Any, found: Any) -> Any:
        return self._judged(found, [(one.partition(": ")[0], one) for _, one in found]) if found or expected else expected

    def _judged(self, found: Any, results: Any) -> Any:
        rows = {
            part.name: [part.source.row(index, number) for index in range(part.parallelism) for number in part.source.numbers()]
            for part in self.parts[:2]
            if part.source is not None
        }
        problem = self._program.judged(rows, [(key, one.partition(": ")[2]) for key, one in results])
        return [("", problem)] if problem else found

    @property
    def may_be_late(self) -> bool:
        """Whether records may be late: a call is overtaken by the news that its source is idle, or the program declares less."""
        program = self._program
        is_quiet = any(part.source is not None and part.source.quiet_s for part in self.parts)
        return program.disorder_ms < JITTER_MS or (is_quiet and program.shape == "called")

    def describe(self) -> str:
        program = self._program
        what = f"  {program.shape}, form {program.variant}, disorder {program.disorder_ms} ms"
        return f"{super().describe()}\n{what}"


def draw_keyed_stream_scenario(seed: int) -> KeyedStreamScenario:
    """Return the scenario of a seed; always the same."""
    random = Random(f"keyed streams {seed}")
    parts = []
    for name in ("left", "right"):
        raises, quiet_s = random.choice((0, 20)), random.choice((0.0, 0.0, 0.1))
        source = Source(name, random.choice((15, 30)), random.choice((0.0, 0.002)), quiet_s, True, raises)
        parts.append(Part(name, draw_spout(random, source), random.choice((1, 2)), source=source))
    work_s, mishaps = random.choice((0.0, 0.001)), Mishaps(random.choice((0, 2)), 0, random.choice((0, 0, 3)))
    make = draw_program(random, KEYED_PROGRAMS[seed % len(KEYED_PROGRAMS)], work_s=work_s, mishaps=mishaps)
    parts.append(Part(PROGRAM, make, random.choice((1, 2, 3)), (("left", "shuffle"), ("right", "shuffle"))))
    sink = random.choice((checkpointed_sinks.Log, checkpointed_sinks.Ledger))
    troubles = Mishaps(random.choice((0, 20)) if sink is checkpointed_sinks.Ledger else 0)
    made: Any = lambda outside: sink(outside, LOG, 0.0, troubles)  # noqa: E731
    parts.append(Part(LOG, made, random.choice((1, 2)), ((PROGRAM, "key"),)))
    workers = random.choice((None, 1, 2))
    is_queue = any(isinstance(part.make(Beyond()), checkpointed_sources.QueueSpout) for part in parts[:2])
    may_damage = not is_queue and sink is checkpointed_sinks.Log
    first, *others = draw_checkpoint_faults(random, has_links=workers != 1, may_damage=may_damage)
    # Three deaths before the first epoch has run end a topology.
    faults = [first, *(replace(fault, share=max(fault.share, 0.1)) for fault in others)]
    requests = draw_requests(random) if random.random() < 0.6 else ()
    if requests and random.random() < 0.4:
        requests = (*requests[:-1], replace(requests[-1], stops=True))
    scenario = KeyedStreamScenario(seed, parts, draw_settings(random, workers), faults, requests)
    scenario.rescaled = draw_rescaled(random, scenario.topology(Beyond()))
    return scenario
