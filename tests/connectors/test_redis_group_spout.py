"""A Redis stream read by a consumer group: on a real server."""

from __future__ import annotations

import json
import math
import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.connectors.spout_tasks import SpoutTask
from tests.servers.redis import RedisProcess
from topo import BasicBolt, BasicCollector, Bolt, ConfigError, RedisGroupSpout, RedisStreamSink, TopologyBuilder, Tuple
from topo.connectors.redis import group_member
from topo.testing import TopologyTest

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("redis")]


class Jobs:
    """A stream of numbers, and its group."""

    def __init__(self, server: RedisProcess) -> None:
        self.server, self.client, self.key = server, server.client(), f"jobs-{secrets.token_hex(4)}"

    def spout(self, **options: Any) -> RedisGroupSpout:
        given = {"fields": ("n",), "value_deserializer": "json", "wait": "0s", **options}
        return RedisGroupSpout(self.server.address, self.key, "workers", **given)

    def task(self, task_index: int = 0, **options: Any) -> SpoutTask:
        config = {name: options.pop(name) for name in ("attempts", "delivery", "has_helper") if name in options}
        return SpoutTask(self.spout(**options), None, task_index, **config)

    def add(self, numbers: Sequence[Any]) -> None:
        for number in numbers:
            self.client.xadd(self.key, {"n": number})

    @property
    def pending(self) -> dict[str, int]:
        """How many entries each consumer holds."""
        return {found["name"]: found["pending"] for found in self.client.xinfo_consumers(self.key, "workers")}

    @property
    def dead(self) -> list[dict[str, str]]:
        return [entry for _, entry in self.client.xrange(f"{self.key}:dead")]


@pytest.fixture
def jobs(redis_server: RedisProcess) -> Jobs:
    return Jobs(redis_server)


def ack_all(task: SpoutTask) -> None:
    for entry_id, _ in task.rows:
        task.spout.ack(entry_id)


def test_entries_are_shared_by_the_tasks_and_acknowledged_when_they_are_done(jobs: Jobs) -> None:
    jobs.add(range(50))
    tasks = [jobs.task(index, batch=5) for index in range(2)]
    tasks[0].until(lambda: tasks[1].turn() or sum(len(task.rows) for task in tasks) == 50)
    assert sorted(tasks[0].values() + tasks[1].values()) == list(range(50)) and all(task.rows for task in tasks)
    assert sum(jobs.pending.values()) == 50
    for task in tasks:
        ack_all(task)
        task.spout.close()
    assert jobs.pending == {"topology.spout.0": 0, "topology.spout.1": 0}


def test_a_replacement_finds_the_entries_of_its_predecessor_at_once_and_then_new_ones(jobs: Jobs) -> None:
    jobs.add(range(5))
    dead = jobs.task(batch=2)
    dead.until(lambda: len(dead.rows) == 5)
    jobs.add([5])
    replacement = jobs.task(batch=2)
    replacement.until(lambda: len(replacement.rows) == 6)
    assert replacement.values() == [0, 1, 2, 3, 4, 5]


def test_entries_of_a_dead_consumer_are_taken_over_and_those_of_a_living_one_are_not(jobs: Jobs) -> None:
    jobs.add(range(3))
    dead = jobs.task(4, claim_after="1s")
    dead.until(lambda: len(dead.rows) == 3)
    # More than one command renews.
    jobs.add(range(3, 1506))
    # Of these two, only the other one would take over entries that the living one has not renewed.
    living, other = jobs.task(1, claim_after="4500ms"), jobs.task(0, claim_after="4s")
    # It may have taken over those of the dead one by then.
    living.until(lambda: len(living.rows) >= 1503)
    living.until(lambda: other.turn() or len(living.rows) + len(other.rows) == 1506)
    ends = living.context.clock() + 4.5
    living.until(lambda: other.turn() or living.context.clock() > ends)
    assert sorted(living.values() + other.values()) == list(range(1506)), "what a task holds, no other task is given"
    assert living.errors == other.errors == []
    ack_all(other)
    ack_all(living)
    # The consumer of a task that there is no more is removed, too: here of one behind the last.
    living.until(lambda: other.turn() or jobs.pending == {"topology.spout.0": 0, "topology.spout.1": 0})


def test_a_task_that_may_not_emit_keeps_its_entries_and_acknowledges_those_that_are_done(jobs: Jobs) -> None:
    jobs.add(range(150))
    paused = jobs.task(1, claim_after="2s", has_helper=True)
    paused.until(lambda: paused.rows)
    assert len(paused.rows) == 100, "the others wait in its memory"
    other, ends = jobs.task(0, claim_after="2s"), paused.context.clock() + 4
    other.until(lambda: paused.run_mails() or paused.context.clock() > ends)
    assert other.rows == [] and paused.errors == []
    ack_all(paused)
    other.until(lambda: paused.run_mails() or jobs.pending["topology.spout.1"] == 50)
    paused.spout.close()
    other.until(lambda: len(other.rows) == 50, "a task that has ended renews nothing")


def test_an_entry_that_fails_is_emitted_again_and_given_up_in_the_end(jobs: Jobs) -> None:
    jobs.add([7, 8])
    task = jobs.task(attempts=3)
    task.until(lambda: len(task.rows) == 2)
    (failing, _), (good, _) = task.rows
    task.spout.ack(good)
    for count in (3, 4):
        task.spout.fail(failing)
        task.until(lambda count=count: len(task.rows) == count)
    task.spout.fail(failing)
    task.until(lambda: jobs.dead)
    assert task.values() == [7, 8, 7, 7]
    (dead,) = jobs.dead
    assert (dead["n"], dead["topo-id"], dead["topo-stream"]) == ("7", failing, jobs.key) and "failed 3 times" in dead[
        "topo-error"
    ]
    assert sum(jobs.pending.values()) == 0 and failing in str(task.errors[0])


def test_entries_that_are_given_up_and_cannot_be_copied_are_not_acknowledged(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.add(["{", 1])
    jobs.client.set(f"{jobs.key}:dead", "no stream")
    task = jobs.task()
    task.until(lambda: any("WRONGTYPE" in str(error) for error in task.errors))
    ack_all(task)
    bad = jobs.client.xrange(jobs.key)[0][0]
    task.until(lambda: [one["message_id"] for one in jobs.client.xpending_range(jobs.key, "workers", "-", "+", 9)] == [bad])
    jobs.client.delete(f"{jobs.key}:dead")
    task.until(lambda: jobs.dead)
    assert [entry["n"] for entry in jobs.dead] == ["{"] and task.values() == [1]
    task.until(lambda: jobs.pending["topology.spout.0"] == 0)


def test_an_entry_is_copied_once_to_the_dead_stream_however_often_it_is_given_up(jobs: Jobs) -> None:
    jobs.add([1])
    task = jobs.task()
    task.until(lambda: task.rows)
    ((entry_id, _),) = task.rows
    for _ in range(2):
        task.spout._member.settle([], [(entry_id, [b"n", b"1"], "why")], [])
    assert [entry["n"] for entry in jobs.dead] == ["1"]


def test_a_wide_entry_is_given_up_with_all_its_fields(jobs: Jobs) -> None:
    jobs.client.xadd(jobs.key, {f"f{number}": number for number in range(5000)})
    task = jobs.task()
    task.until(lambda: jobs.dead)
    assert len(jobs.dead[0]) == 5003 and sum(jobs.pending.values()) == 0


def test_a_bad_entry_is_given_up_and_the_others_are_read(jobs: Jobs) -> None:
    jobs.add([1, "{", 2])
    task = jobs.task()
    task.until(lambda: len(task.rows) == 2 and jobs.dead)
    assert task.values() == [1, 2] and jobs.dead[0]["n"] == "{"
    assert task.counter("bad_records") == 1


def test_an_entry_that_ends_its_process_each_time_is_given_up(jobs: Jobs) -> None:
    jobs.add([1])
    for _ in range(3):
        task = jobs.task(attempts=3)
        task.until(lambda task=task: task.rows)
    task = jobs.task(attempts=3)
    task.until(lambda: jobs.dead)
    assert task.rows == [] and "was delivered 4 times" in jobs.dead[0]["topo-error"]


def test_entries_that_were_removed_while_they_were_pending_are_reported(jobs: Jobs) -> None:
    jobs.add(range(4))
    dead = jobs.task()
    dead.until(lambda: len(dead.rows) == 4)
    jobs.client.xtrim(jobs.key, maxlen=1, approximate=False)
    task = jobs.task()
    task.until(lambda: task.rows and task.errors)
    assert task.values() == [3] and "has lost 3 entries" in str(task.errors[0])


def test_a_group_that_was_removed_is_reported_and_made_again(jobs: Jobs) -> None:
    jobs.add([1])
    task = jobs.task(start="latest")
    jobs.add([2])
    task.until(lambda: task.turn() or (jobs.client.exists(jobs.key) and jobs.client.xinfo_groups(jobs.key)))
    jobs.add([3])
    task.until(lambda: 3 in task.values())
    assert 1 not in task.values()
    jobs.client.delete(jobs.key)
    jobs.add([4])
    task.until(lambda: 4 in task.values())
    assert "is gone" in str(task.errors[0])


def test_the_lag_is_what_no_consumer_was_given_and_what_waits_in_the_task(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_member, "_LAG_S", 0.0)
    jobs.add(range(30))
    first, other = jobs.task(0, batch=5), jobs.task(1, batch=5)
    seen: list[float] = []
    first.until(lambda: seen.append(first.gauge("lag")) or len(first.rows) == 30)
    assert max(seen) == 30
    jobs.add([30])
    other.until(lambda: other.rows)
    first.until(lambda: first.gauge("lag") == 0)
    assert other.gauge("lag") <= 1, "the entries that wait for any are counted once"


def test_a_lag_that_is_not_known_is_not_shown(jobs: Jobs) -> None:
    jobs.add(range(9))
    task = jobs.task(batch=5)
    assert "lag" not in task.context.metrics.snapshot().gauges, "0 would say that nothing is left to read"
    task.until(lambda: task.rows)
    assert task.gauge("lag") > 0
    # Behind the last entry that was given: the server does not know from here on.
    ((removed, _),) = jobs.client.xrevrange(jobs.key, count=1)
    jobs.client.xgroup_create(jobs.key, "others", "0")
    jobs.client.xdel(jobs.key, removed)
    jobs.client.xadd(jobs.key, {"n": 9})
    other = SpoutTask(RedisGroupSpout(jobs.server.address, jobs.key, "others", fields=("n",), batch=5, wait="0s"), None, 0)
    other.until(lambda: other.rows)
    assert math.isnan(other.gauge("lag"))


def test_the_rights_that_the_page_names_are_enough(jobs: Jobs) -> None:
    jobs.client.execute_command("ACL", "SETUSER", jobs.key, "on", ">pw", "~*", "+eval", "+@stream")
    jobs.add([1, "{"])
    address = jobs.server.address.replace("unix://", f"unix://{jobs.key}:pw@")
    task = SpoutTask(RedisGroupSpout(address, jobs.key, "workers", fields=("n",), value_deserializer="json", wait="0s"))
    task.until(lambda: task.rows and jobs.dead)
    ack_all(task)
    task.until(lambda: sum(jobs.pending.values()) == 0)
    assert len(task.errors) == 1


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_fault_of_the_server_is_reported_once_and_reading_continues(jobs: Jobs, fault: str) -> None:
    jobs.add(range(5))
    task = jobs.task(timeout="300ms")
    task.until(lambda: len(task.rows) == 5)
    ack_all(task)
    jobs.server.kill() if fault == "killed" else jobs.server.freeze()
    task.until(lambda: task.errors)
    jobs.server.start_again() if fault == "killed" else jobs.server.thaw()
    jobs.add(range(5, 8))
    task.until(lambda: len(task.rows) == 8 and not any(map(int, [jobs.pending["topology.spout.0"] - 3])))
    assert ["is not reached" in str(task.errors[0]), "is reached again" in str(task.errors[1])] == [True, True]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"start": "0"}, "'earliest' or 'latest'"),
        ({"batch": 0}, "at least 1"),
        ({"claim_after": "10ms"}, "at least 1s"),
        ({"wait": "5s"}, "shorter than timeout"),
        ({"timestamp": "at"}, "'record' or None"),
        ({"fields": "n"}, "must be texts"),
    ],
)
def test_arguments_that_cannot_work_are_refused(jobs: Jobs, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        jobs.spout(**options)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_an_entry_that_cannot_be_emitted_is_given_up_and_its_neighbours_are_read(jobs: Jobs, delivery: str) -> None:
    jobs.add([1, json.dumps([2**70]), 2])

    def build() -> Any:
        builder = TopologyBuilder("group").config(delivery=delivery, checkpoint_interval="1s")
        builder.set_spout("jobs", jobs.spout())
        builder.set_bolt("out", RedisStreamSink(jobs.server.address, f"{jobs.key}:out")).shuffle_grouping("jobs")
        return builder.build()

    TopologyTest(build).advance("5s")
    assert [entry["n"] for _, entry in jobs.client.xrange(f"{jobs.key}:out")] == ["1", "2"]
    assert "cannot be emitted" in jobs.dead[0]["topo-error"] and sum(jobs.pending.values()) == 0


class Holder(Bolt):
    """Leaves its inputs open for ever."""

    def execute(self, tup: Tuple) -> None:
        pass


def test_recoveries_are_no_failures_of_the_entries_that_were_under_way(jobs: Jobs) -> None:
    jobs.add(range(5))

    def build() -> Any:
        builder = TopologyBuilder("group").config(delivery="at_least_once", attempts=3)
        builder.set_spout("jobs", jobs.spout())
        builder.set_bolt("numbers", Holder()).shuffle_grouping("jobs")
        return builder.build()

    test = TopologyTest(build)
    for _ in range(4):
        test.advance("1s")
        test.crash("numbers")
    test.advance("5s")
    assert jobs.dead == [] and len(test.emitted("jobs")) >= 25 and jobs.pending == {"group.jobs.0": 5}


class Numbers(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup["n"],))


@pytest.mark.parametrize("crash", ["jobs", "numbers"])
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once", "at_most_once"])
def test_a_topology_reads_each_entry_whatever_crashes(jobs: Jobs, delivery: str, crash: str) -> None:
    jobs.add(range(100))

    def build() -> Any:
        builder = TopologyBuilder("group").config(delivery=delivery, checkpoint_interval="1s", max_spout_pending=20)
        builder.set_spout("jobs", jobs.spout(batch=10), 2)
        builder.set_bolt("numbers", Numbers()).shuffle_grouping("jobs")
        sink = RedisStreamSink(jobs.server.address, f"{jobs.key}:out")
        builder.set_bolt("out", sink).shuffle_grouping("numbers")
        return builder.build()

    test = TopologyTest(build)
    test.advance("20ms")
    test.crash(crash)
    test.advance("20s")
    seen = Counter(int(entry["n"]) for _, entry in jobs.client.xrange(f"{jobs.key}:out"))
    assert set(seen) <= set(range(100))
    if delivery != "at_most_once":
        assert set(seen) == set(range(100))
    if delivery == "exactly_once":
        assert set(seen.values()) == {1}
    assert sum(jobs.pending.values()) == 0
