"""Random walks of a whole topology under a real master; `world.py` has the checks of every step."""

from __future__ import annotations

import random

import pytest

from tests.unit.master.world import World
from tests.unit.plan.parts import Lines, Sink
from topo.builder import TopologyBuilder
from topo.master.events import ActivateAsked, DeactivateAsked, DrainAsked, KillAsked, RestartAsked
from topo.master.outcome import OutcomeKind
from topo.observability.status import describe
from topo.plan.physical import PhysicalPlan, physical_plan

SEEDS = range(60)
LONGEST_WALK = 20_000


def plan_of(seed: int, **settings: object) -> PhysicalPlan:
    choose = random.Random(seed)
    builder = TopologyBuilder("walk").config(ackers=choose.randint(1, 2), workers=choose.choice((None, 1, 2, 3)), **settings)
    builder.set_spout("lines", Lines(), choose.randint(1, 2))
    builder.set_bolt("sink", Sink(), choose.randint(1, 3)).shuffle_grouping("lines")
    return physical_plan(builder.build())


def walk(world: World, steps: int, faults: float) -> None:
    """Let events happen until the topology is over, up to a limit."""
    for _ in range(steps):
        if world.outcome is not None:
            return
        if world.random.random() < faults:
            world.fault()
        else:
            world.step()


def heal_and_finish(world: World) -> None:
    world.is_healed = True
    for process in world.processes.values():
        process.paused_until = min(process.paused_until, world.now)
    world.feed(ActivateAsked())
    walk(world, LONGEST_WALK, faults=0.0)
    assert world.outcome is not None, f"not over at {world.now:.1f} s: {describe(world.master, world.now)}"


def has_ended(world: World, kind: OutcomeKind) -> bool:
    return world.outcome is not None and world.outcome.kind is kind


def walked_to_its_end(plan: PhysicalPlan, seed: int) -> World:
    """Walk, and finish: the topology is done, or has crashed before it ran."""
    world = World(plan, seed, messages=15)
    walk(world, world.random.choice((100, 400, 1000)), faults=world.random.choice((0.0, 0.005, 0.03)))
    heal_and_finish(world)
    assert has_ended(world, OutcomeKind.DONE) or (
        has_ended(world, OutcomeKind.CRASHED) and not world.master.recovery.epochs.has_run
    )
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_lost_on_the_way_a_bounded_topology_is_done_in_the_end(seed: int) -> None:
    world = walked_to_its_end(plan_of(seed), seed)
    assert not has_ended(world, OutcomeKind.DONE) or not any(world.undone.values()), "a message was not acked"


@pytest.mark.parametrize("seed", SEEDS)
def test_an_operator_may_interfere_at_any_moment(seed: int) -> None:
    world = World(plan_of(seed), seed, messages=200)
    wishes = [ActivateAsked(), DeactivateAsked(), RestartAsked(world.plan.worker_of(1))]
    for _ in range(world.random.randint(1, 12)):
        walk(world, 50, faults=0.005)
        world.feed(world.random.choice(wishes))
    last = world.random.choice((DrainAsked(0.5), DrainAsked(60.0), KillAsked()))
    world.feed(last)
    walk(world, 100, faults=0.005)
    heal_and_finish(world)
    assert world.outcome is not None
    allowed = {OutcomeKind.CRASHED} if not world.master.recovery.epochs.has_run else set()
    if isinstance(last, KillAsked):
        allowed |= {OutcomeKind.KILLED}
    else:
        allowed |= {OutcomeKind.DRAINED, OutcomeKind.CUT_SHORT}
    assert world.outcome.kind in allowed


@pytest.mark.parametrize("seed", SEEDS)
def test_with_checkpoints_recoveries_use_the_last_and_the_end_has_a_final_one(seed: int) -> None:
    world = walked_to_its_end(checkpointed(seed), seed)
    assert not has_ended(world, OutcomeKind.DONE) or world.complete


def checkpointed(seed: int) -> PhysicalPlan:
    return plan_of(seed, delivery="exactly_once", checkpoint_interval="1s", checkpoint_pause="0.1s", checkpoint_timeout="5s")


def test_the_walks_with_checkpoints_come_across_everything_they_are_for() -> None:
    seen: set[str] = set()
    restores = 0
    for seed in SEEDS:
        world = World(checkpointed(seed), seed, messages=15)
        walk(world, 1000, faults=0.03)
        heal_and_finish(world)
        seen |= world.seen
        assert world.master.checkpoints is not None
        restores += world.master.checkpoints.restores
    assert seen >= {"checkpoint", "failed commit", "discarded", "closed", "kill", "edge"}
    assert restores > 20


def test_a_seed_replays_exactly() -> None:
    ends = []
    for _ in range(2):
        world = World(plan_of(3), 3, messages=15)
        walk(world, 500, faults=0.03)
        ends.append((world.now, world.last_epoch, world.master.counts, world.lives))
    assert ends[0] == ends[1]


def test_the_walks_come_across_everything_they_are_for() -> None:
    seen: set[str] = set()
    losses = epochs = fenced = edges = 0
    for seed in SEEDS:
        world = World(plan_of(seed), seed, messages=15)
        walk(world, 1000, faults=0.05)
        heal_and_finish(world)
        seen |= world.seen
        counts = world.master.counts
        losses, epochs = losses + counts.losses, epochs + counts.epochs
        fenced, edges = fenced + counts.fenced, edges + counts.edges_lost
    assert seen >= {"kill", "kill two", "pause", "edge", "failed launch", "zombie stopped", "closed"}
    assert min(losses, epochs, fenced, edges) > 20
