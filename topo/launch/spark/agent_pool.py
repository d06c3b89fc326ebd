"""The agents of a topology's slots and the workers they run: decisions alone, no Spark, no sockets.

A slot is kept filled: its job is submitted, the job's task becomes an agent that sends Hello, and when agent or job are gone the
job is submitted again. Spark itself retries a task whose process has died, which brings an agent with a higher attempt.

- At most one agent of a slot counts: that of the highest (submission, attempt) that ever sent Hello. Other agents that
  send get Leave as the answer; so does an agent that was silent for `timeout_s`, whose workers count as ended then. Workers of
  it that still run are fenced by their incarnation.
- A worker without a place waits. Workers are spread: no agent takes more than its share while others are expected, and of the
  agents with room the one on the least busy host is taken. A worker that has waited for PATIENCE_S takes any agent there is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from topo.ids import Incarnation, WorkerId
from topo.launch.spark.messages import BeatAnswer, End, FromDriver, Hello, Leave, Run, WorkerOver
from topo.worker.spec import WorkerSpec

PATIENCE_S = 5.0
"""How long a worker waits for an idle agent before it shares one. An executor that has died is back sooner."""
QUICK_S = 10.0
"""A job that ends sooner than this after it was submitted is submitted again with a back-off."""
_LONGEST_BACK_OFF_S = 30.0


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """Submit the job of a slot. Answered by `AgentPool.job_ended`, one day."""

    slot: int
    submission: int


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Have Spark cancel that job, which may take it some seconds."""

    slot: int
    submission: int


@dataclass(frozen=True, slots=True)
class SendToAgent:
    """Send a message to that agent, if it is still connected."""

    identity: bytes
    message: FromDriver


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """A worker has ended, or counts as ended."""

    worker: WorkerId
    incarnation: Incarnation
    description: str
    marker: bytes = b""


PoolCommand = SubmitJob | CancelJob | SendToAgent | WorkerGone


@dataclass(slots=True)
class KnownAgent:
    """An agent that has sent Hello."""

    identity: bytes
    life: tuple[int, int]
    host: str
    last_beat_at: float
    workers: dict[WorkerId, Incarnation] = field(default_factory=dict)


@dataclass(slots=True)
class _Slot:
    number: int
    submission: int = 0
    submitted_at: float = 0.0
    submit_at: float | None = 0.0
    """When the job is to be submitted; None while there is one."""
    failures: int = 0
    """Jobs in a row that ended soon."""
    why: str = ""
    agent: KnownAgent | None = None
    latest: tuple[int, int] = (0, -1)


@dataclass(frozen=True, slots=True)
class _Waiting:
    spec: WorkerSpec
    since: float


class AgentPool:
    """Keeps slots filled and workers placed.

    Args:
        slots: how many there are.
        workers: how many workers share them.
        timeout_s: an agent that was silent for this time is given up.
        fresh_s: an agent with a heartbeat in this last time is preferred for a new worker.
    """

    def __init__(self, slots: int, workers: int, timeout_s: float, fresh_s: float) -> None:
        self._slots = {number: _Slot(number) for number in range(slots)}
        self._share = -(-workers // slots)
        self._timeout_s = timeout_s
        self._fresh_s = fresh_s
        self._waiting: dict[WorkerId, _Waiting] = {}
        self._agents: dict[bytes, _Slot] = {}

    @property
    def is_complete(self) -> bool:
        return len(self._agents) == len(self._slots)

    @property
    def agents(self) -> list[KnownAgent]:
        """The agents that count, by slot."""
        return [slot.agent for slot in self._slots.values() if slot.agent is not None]

    def missing(self) -> list[tuple[int, str]]:
        """The slots without an agent, and why their last job ended; "" when it has not."""
        return [(slot.number, slot.why) for slot in self._slots.values() if slot.agent is None]

    # -- what agents and Spark say ---------------------------------------------------------------------------------------

    def hello(self, identity: bytes, message: Hello, now: float) -> list[PoolCommand]:
        slot, life = self._slots.get(message.slot), (message.submission, message.attempt)
        if slot is None or life <= slot.latest or message.submission != slot.submission:
            return [SendToAgent(identity, Leave("another agent has its slot"))]
        commands = self._give_up(slot, "its agent has ended")
        slot.latest = life
        slot.agent = KnownAgent(identity, life, message.host, now)
        self._agents[identity] = slot
        return [*commands, SendToAgent(identity, BeatAnswer()), *self._place(now)]

    def beat(self, identity: bytes, now: float) -> list[PoolCommand]:
        slot = self._agents.get(identity)
        if slot is None or slot.agent is None:
            return [SendToAgent(identity, Leave("it was given up"))]
        slot.agent.last_beat_at = now
        return [SendToAgent(identity, BeatAnswer())]

    def worker_over(self, identity: bytes, message: WorkerOver) -> list[PoolCommand]:
        """A worker of an agent has ended. Of an agent that was given up its workers have been counted already."""
        slot = self._agents.get(identity)
        agent = slot.agent if slot is not None else None
        if agent is None or agent.workers.get(message.worker) != message.incarnation:
            return []
        del agent.workers[message.worker]
        return [WorkerGone(message.worker, message.incarnation, message.description, message.marker)]

    def job_ended(self, slot_number: int, submission: int, why: str, now: float) -> list[PoolCommand]:
        """Handle the end of a job in Spark: its agent left, or could not be kept alive."""
        slot = self._slots[slot_number]
        if submission != slot.submission or slot.submit_at is not None:
            return []
        slot.why = why
        slot.failures = slot.failures + 1 if now - slot.submitted_at < QUICK_S else 0
        back_off_s = min(_LONGEST_BACK_OFF_S, 2.0 ** (slot.failures - 1)) if slot.failures else 0.0
        slot.submit_at = now + back_off_s
        return [*self._give_up(slot, f"its agent has ended: {why}"), *self.tick(now)]

    # -- requests of the master --------------------------------------------------------------------------------------------

    def start(self, spec: WorkerSpec, now: float) -> list[PoolCommand]:
        self._waiting[spec.worker] = _Waiting(spec, now)
        return self._place(now)

    def stop(self, worker: WorkerId, incarnation: Incarnation, kill: bool) -> list[PoolCommand]:
        waiting = self._waiting.get(worker)
        if waiting is not None and waiting.spec.incarnation == incarnation:
            del self._waiting[worker]
            return [WorkerGone(worker, incarnation, "it was not started yet")]
        return [
            SendToAgent(agent.identity, End(worker, incarnation, kill))
            for agent in self.agents
            if agent.workers.get(worker) == incarnation
        ]

    # -- time ------------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[PoolCommand]:
        """Give up silent agents, submit jobs, and place workers that have waited long enough."""
        commands: list[PoolCommand] = []
        for slot in self._slots.values():
            agent = slot.agent
            if agent is not None and now - agent.last_beat_at >= self._timeout_s:
                why = f"its agent on {agent.host} was silent for {now - agent.last_beat_at:.1f} s"
                commands.append(SendToAgent(agent.identity, Leave("it was silent for too long")))
                commands.append(CancelJob(slot.number, slot.submission))
                commands += self._give_up(slot, why)
                slot.submit_at, slot.why = now, why
            if slot.submit_at is not None and slot.submit_at <= now:
                slot.submission += 1
                slot.submitted_at, slot.submit_at = now, None
                commands.append(SubmitJob(slot.number, slot.submission))
        return commands + self._place(now)

    def validate(self) -> None:
        assert {slot.agent.identity for slot in self._slots.values() if slot.agent is not None} == set(self._agents)
        placed = [worker for agent in self.agents for worker in agent.workers]
        assert len(placed) == len(set(placed)), "a worker runs at two agents"
        for slot in self._slots.values():
            assert slot.agent is None or slot.agent.life == slot.latest
            assert slot.agent is None or slot.submit_at is None, "a slot with an agent has a job"

    # -- decisions -------------------------------------------------------------------------------------------------------

    def _give_up(self, slot: _Slot, why: str) -> list[PoolCommand]:
        agent, slot.agent = slot.agent, None
        if agent is None:
            return []
        del self._agents[agent.identity]
        return [WorkerGone(worker, incarnation, why) for worker, incarnation in agent.workers.items()]

    def _place(self, now: float) -> list[PoolCommand]:
        commands: list[PoolCommand] = []
        for worker, waiting in sorted(self._waiting.items()):
            agent = self._choose(waiting, now)
            if agent is not None:
                del self._waiting[worker]
                agent.workers[worker] = waiting.spec.incarnation
                commands.append(SendToAgent(agent.identity, Run(waiting.spec)))
        return commands

    def _choose(self, waiting: _Waiting, now: float) -> KnownAgent | None:
        is_patient = now - waiting.since < PATIENCE_S
        worker = waiting.spec.worker
        open_to_it = [
            agent
            for agent in self.agents
            # A former life of the worker may still be on its way out there; it has no say, yet one slot is one worker's.
            if worker not in agent.workers
            and (not is_patient or (len(agent.workers) < self._share and now - agent.last_beat_at <= self._fresh_s))
        ]
        busy: dict[str, int] = {}
        for agent in self.agents:
            busy[agent.host] = busy.get(agent.host, 0) + len(agent.workers)
        return min(open_to_it, key=lambda agent: (len(agent.workers), busy[agent.host]), default=None)
