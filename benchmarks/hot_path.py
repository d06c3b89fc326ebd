"""What a tuple costs each task: word count with every word acked, all tasks in one process, joined by encoded frames.

    python -m benchmarks.hot_path                    spout, split, count and acker
    python -m benchmarks.hot_path --counts 4         with a fields grouping that has something to do
    python -m benchmarks.hot_path --retrying         with a spout whose messages the engine keeps
    python -m benchmarks.hot_path --windows          the windowed sum of `topo bench` in place of the word count
    python -m benchmarks.hot_path --delivery MODE    at_least_once, the default; exactly_once has no checkpoint in it

With `--count TASKS` the clock moves by a millisecond a step, so that each run does the same, and the steps of a component, or of
`all`, run within `operator.call`: valgrind counts their instructions. The windows then have a thousand keys and an event a
millisecond, which is five events in a pane of a run of 2,000 lines.

    valgrind --tool=callgrind --collect-atstart=no --toggle-collect=_operator_call \\
        python -m benchmarks.hot_path --rounds 1 --lines 2000 --count all

Prints nanoseconds of processor time a word (an event), the best of several rounds: transport and waiting are not in it.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections import defaultdict
from operator import call
from typing import Any

from topo.api.aggregates import Sum
from topo.api.bolt import BasicBolt
from topo.api.context import TaskContext
from topo.api.operator_bolts import WindowBolt
from topo.api.spout import RetryingSpout, Spout
from topo.api.topology import Topology
from topo.api.watermarks import WatermarkStrategy
from topo.api.windows import TumblingEventTimeWindows
from topo.builder import TopologyBuilder
from topo.hot import Ids
from topo.ids import Epoch, Incarnation, TaskId
from topo.plan.physical import physical_plan
from topo.task.commands import SendFrame
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.events import FrameArrived, Idle, RoutesChanged, TaskEvent, Turn
from topo.task.factory import make_task
from topo.task.task import Task
from topo.wire.codec import Codec
from topo.wire.control import Go, Quiet, Routes, TaskReady, TaskRoute
from topo_cli import workloads
from topo_cli.workloads import EventRows, Parse, events

WORDS_A_LINE = 10
VOCABULARY = 50_000


def sentences(count: int) -> list[str]:
    """Lines of words, few of them frequent, as in any text."""
    chance = random.Random(1)
    words = [f"w{number}" for number in range(VOCABULARY)]
    drawn = [words[min(int(chance.paretovariate(0.8)), VOCABULARY - 1)] for _ in range(count * WORDS_A_LINE)]
    return [" ".join(drawn[at : at + WORDS_A_LINE]) for at in range(0, len(drawn), WORDS_A_LINE)]


class Lines(Spout):
    """Emits lines, over and over, up to a number."""

    outputs = ("line",)

    def __init__(self, lines: list[str], count: int) -> None:
        self.lines, self.count = lines, count

    def open(self, context: TaskContext, collector: Any) -> None:
        self.next, self.collector = 0, collector

    def next_tuple(self) -> None:
        number = self.next
        if number == self.count:
            self.collector.end_of_input()
            return
        self.next = number + 1
        self.collector.emit((self.lines[number % len(self.lines)],), message_id=number)


class RetriedLines(Lines, RetryingSpout):
    """The same, replayed by the engine."""


class Split(BasicBolt):
    """Lines to words."""

    outputs = ("word",)

    def execute(self, tup: Any, collector: Any) -> None:
        for word in tup.values[0].split():
            collector.emit((word,))


class Count(BasicBolt):
    """Counts words."""

    def prepare(self, context: TaskContext) -> None:
        self.counts: dict[str, int] = defaultdict(int)

    def execute(self, tup: Any, collector: Any) -> None:
        self.counts[tup.values[0]] += 1


class Drop(BasicBolt):
    """Emits nothing."""

    def execute(self, tup: Any, collector: Any) -> None: ...


class NoNote:
    """Notes nothing."""

    def hold(self, task: TaskId, roots: bytes) -> None: ...

    def release(self) -> None: ...


class Round:
    """One run of the topology."""

    def __init__(self, topology: Topology, counted: str = "") -> None:
        plan = physical_plan(topology)
        self._counted = counted
        self._is_going = False
        self._moment = 1_000.0
        self.plan = plan
        self.spent: dict[TaskId, float] = {}
        self.inboxes: dict[TaskId, list[FrameArrived]] = {}
        self.tasks: dict[TaskId, Task] = {}
        self.told: dict[type, dict[TaskId, Any]] = {TaskReady: {}, Quiet: {}}
        for spec in plan.tasks:
            declared = None if spec.id in plan.ackers else topology.component(spec.component)
            component: Any = None if declared is None else declared.make()
            config = plan.config_of(spec.component)
            context = TaskContext(plan.name, spec.component, spec.id, spec.index, config=config, tasks=plan.task_ids)
            watermarks, chain = (None, None) if declared is None else (declared.watermarks, declared.chain)
            setup = TaskSpec(spec.id, plan, config, component, context, watermarks=watermarks, chain=chain)
            ports = TaskEnvironment(Ids(b"%d" % spec.id), self.now, Codec(), NoNote(), lambda: int(time.time() * 1000))
            self.tasks[spec.id] = make_task(setup, ports)
            self.spent[spec.id], self.inboxes[spec.id] = 0.0, []
        routes = [TaskRoute(task, plan.worker_of(task), Incarnation(1), "", "") for task in self.tasks]
        for task in self.tasks:
            self.give(task, RoutesChanged(Routes(1, Epoch(1), routes), frozenset()))
        while len(self.told[TaskReady]) < len(self.tasks):
            self.step()

    def give(self, task: TaskId, event: TaskEvent) -> None:
        """Have a task handle an event, and sort its commands."""
        for command in self.tasks[task].handle(event, self.now()):
            if isinstance(command, SendFrame):
                self.inboxes[command.target].append(FrameArrived(command.frame))
            else:
                self.told.get(type(command.message), {})[command.message.task] = command.message

    def now(self) -> float:
        """Return the moment, in seconds."""
        return self._moment if self._counted else time.perf_counter()

    def step(self) -> None:
        """Let every task read its inboxes and work until it rests, as its process would."""
        self._moment += 0.001
        for id_, task in self.tasks.items():
            began = time.thread_time()
            if self._is_going and self._counted in ("all", task.component_id):
                call(self.work, id_, task)
            else:
                self.work(id_, task)
            self.spent[id_] += time.thread_time() - began

    def work(self, id_: TaskId, task: Task) -> None:
        """Let a task read its inboxes and work until it rests."""
        arrived, self.inboxes[id_] = self.inboxes[id_], []
        for event in arrived:
            self.give(id_, event)
        while task.has_work:
            self.give(id_, Turn())
        deadline = task.next_deadline(self.now())
        self.give(id_, Turn() if deadline is not None and deadline <= self.now() else Idle())

    def run(self) -> dict[TaskId, float]:
        """Return the processor seconds of each task from Go to the end."""
        gc.collect()
        gc.freeze()
        self.spent = dict.fromkeys(self.spent, 0.0)
        self._is_going = True
        for task in self.tasks:
            self.give(task, Go(Epoch(1)))
        while not self.is_over:
            self.step()
        gc.unfreeze()
        return self.spent

    @property
    def is_over(self) -> bool:
        """Whether every task has ended and is quiet."""
        facts = self.told[Quiet].values()
        return len(facts) == len(self.tasks) and all(quiet.ended and quiet.quiet for quiet in facts)


def word_count(options: argparse.Namespace) -> TopologyBuilder:
    """Words of lines, of which the task of a word counts it."""
    builder = TopologyBuilder("hot-path")
    builder.set_spout("spout", (RetriedLines if options.retrying else Lines)(sentences(2_000), options.lines))
    builder.set_bolt("split", Split()).shuffle_grouping("spout")
    builder.set_bolt("count", Count, parallelism=options.counts).fields_grouping("split", "word")
    return builder


def windowed_sum(options: argparse.Namespace) -> TopologyBuilder:
    """Events, as `topo bench windowed-sum` has them, and their sum by key in windows of ten seconds of event time."""
    if options.count:
        workloads._KEYS, workloads._EVENTS_PER_MS = 1_000, 1
    rows = EventRows()
    rows.events = events()
    lines = [rows.row(number)[0] for number in range(options.lines * WORDS_A_LINE)]
    builder = TopologyBuilder("hot-path").config(max_spout_pending=1_000_000)
    builder.set_spout("spout", (RetriedLines if options.retrying else Lines)(lines, len(lines)))
    watermarks = WatermarkStrategy.bounded_out_of_orderness("5s", timestamp="ts")
    builder.set_bolt("parse", Parse(), watermarks=watermarks).shuffle_grouping("spout")
    window = WindowBolt(key="key", window=TumblingEventTimeWindows.of("10s"), aggregate=Sum("value"))
    builder.set_bolt("count", window, options.counts).fields_grouping("parse", "key")
    builder.set_bolt("sink", Drop).shuffle_grouping("count")
    return builder


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=20_000, help="lines of ten words in a round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--counts", type=int, default=1, help="tasks that count")
    parser.add_argument("--batch", type=int, help="tuples of a full batch; by default as the setting says")
    parser.add_argument("--retrying", action="store_true")
    parser.add_argument("--windows", action="store_true", help="windowed sum; ten events where the word count has a line")
    parser.add_argument("--delivery", choices=("at_least_once", "at_most_once", "exactly_once"), default="at_least_once")
    parser.add_argument("--count", default="", metavar="TASKS", help="component whose instructions valgrind is to count, or all")
    options = parser.parse_args()
    best: dict[str, float] = {}
    for _ in range(options.rounds):
        builder = (windowed_sum if options.windows else word_count)(options)
        builder.config(delivery=options.delivery, **({"batch_size": options.batch} if options.batch else {}))
        turn = Round(builder.build(), options.count)
        spent: dict[str, float] = defaultdict(float)
        for task, seconds in turn.run().items():
            spent[turn.tasks[task].component_id] += seconds
        counted = sum(task.statistics().counters.acked for task in turn.tasks.values() if task.component_id == "count")
        assert counted == options.lines * WORDS_A_LINE, counted
        for component, seconds in spent.items():
            cost = seconds / counted * 1e9
            best[component] = min(cost, best.get(component, cost))
    for component, cost in best.items():
        print(f"{component:10} {cost:6.0f} ns a word")
    print(f"{'all':10} {sum(best.values()):6.0f} ns a word")


if __name__ == "__main__":
    main()
