"""Every example does what its first lines say, whatever the order of events, and whatever is killed."""

from __future__ import annotations

import sqlite3
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from topo import IterableSpout
from topo.master.outcome import OutcomeKind
from topo.testing import CRASH, END, FAIL_NEXT, PAUSE, TICK, TopologyTest, run_bolt, tuple_of
from topologies import access_log, bulk_insert, diamond, enrichment, top_n, word_count, word_count_batches

SEEDS = range(4)
LINES = ["The sea, the sea!", "the open", "SEA and sky", "sky"]
WORDS = Counter(the=3, sea=3, open=1, sky=2) + Counter({"and": 1})


# -- word count ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_word_count_counts_the_words_of_a_file(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(LINES))
    test = TopologyTest(partial(word_count.topology, str(text), top=2, splits=2, counts=3), seed=seed)

    test.run()

    test.assert_all_acked()
    assert Counter(dict(test.emitted("count"))) & WORDS == Counter(dict(test.emitted("count")))
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [["3", "the"], ["3", "sea"]]
    assert test.outcome is not None and test.outcome.exit_code == 0


def test_word_count_reads_the_standard_library_unless_told_otherwise() -> None:
    topology = word_count.topology()

    assert [spec.id for spec in topology.components] == ["lines", "split", "count", "report"]


@pytest.mark.parametrize("component", [None, "lines", "split", "count", "report"])
@pytest.mark.parametrize("arrow", [0, 1])
def test_word_count_in_batches_counts_the_same_whatever_is_killed(
    arrow: int, component: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.py").write_text("\n".join(LINES))
    topology = partial(word_count_batches.topology, str(tmp_path), lines=2, splits=2, counts=2, arrow=arrow)
    blocks = [{"line": LINES[:2]}, CRASH(component), {"line": LINES[2:]}, END] if component else None
    test = TopologyTest(topology, sources={"lines": blocks} if blocks else None, checkpoint_interval="100ms")

    test.run()

    test.assert_all_acked()
    printed = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert {word: int(count) for count, word in printed} == WORDS


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("component", ["lines", "split", "count", "report"])
def test_word_count_counts_each_word_once_whatever_is_killed(
    seed: int, component: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = partial(word_count.topology, "unused.txt", splits=2, counts=2)
    test = TopologyTest(
        topology, sources={"lines": [*LINES[:2], CRASH(component), *LINES[2:], END]}, seed=seed, checkpoint_interval="100ms"
    )

    test.run()

    test.assert_all_acked()
    printed = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert {word: int(count) for count, word in printed} == WORDS


# -- top n ---------------------------------------------------------------------------------------------------------------


def test_top_n_counts_the_last_ticks_and_forgets_what_is_older() -> None:
    run = run_bolt(
        top_n.RollingCount(window=2, top=1),
        [tuple_of(word="fig"), tuple_of(word="fig"), TICK, tuple_of(word="pear"), TICK, TICK],
        end_of_input=False,
    )

    run.assert_all_acked()
    assert run.values() == [((("fig", 2),),), ((("fig", 2),),), ((("pear", 1),),)]
    assert all(emitted.inputs == () for emitted in run.emitted["default"])


@pytest.mark.parametrize("seed", SEEDS)
def test_top_n_joins_the_counts_of_all_tasks_at_each_tick(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    clicks = ["fig"] * 3 + ["plum"] * 2 + ["pear"]
    test = TopologyTest(
        partial(top_n.topology, top=2, counters=3),
        sources={"clicks": [*clicks, PAUSE("20s"), "lemon"]},
        seed=seed,
        checkpoint_interval="1s",
    )

    test.advance("2500ms")
    test.assert_all_acked()
    assert capsys.readouterr().out.splitlines()[-1] == "fig 3  plum 2"
    test.run()
    test.advance("2s")

    assert capsys.readouterr().out.splitlines()[-1] == "lemon 1"


def test_top_n_hands_its_slots_on_by_word() -> None:
    ticked = [tuple_of(word="fig"), tuple_of(word="fig"), TICK, tuple_of(word="fig"), tuple_of(word="pear")]
    state = run_bolt(top_n.RollingCount(window=2, top=1), ticked, end_of_input=False).bolt.snapshot()
    assert state == {"fig": [2, 1], "pear": [0, 1]}

    narrower = top_n.RollingCount(window=1, top=9)
    narrower.restore(state)
    assert narrower.snapshot() == {"fig": [1], "pear": [1]}


def test_top_n_clicks_are_the_same_in_every_run() -> None:
    clicks = [top_n.click(number, rate=10) for number in range(50)]

    assert clicks == [top_n.click(number, rate=10) for number in range(50)]
    assert set(clicks) <= set(top_n.WORDS)


def test_top_n_and_the_access_log_go_on_from_what_they_had_counted() -> None:
    rolling = top_n.RollingCount(window=2, top=1)
    run_bolt(rolling, [tuple_of(word="fig"), tuple_of(word="fig"), TICK, tuple_of(word="pear")], end_of_input=False)
    other = top_n.RollingCount(window=2, top=1)
    other.restore(rolling.snapshot())
    assert list(other.slots) == [{"fig": 2}, {"pear": 1}]
    other.restore(None)
    assert list(other.slots) == [{}, {}]

    watch = access_log.Watch(limit=0.1, last=3)
    run_bolt(watch, [tuple_of(status=status) for status in (200, 503, 503, 200)])
    again = access_log.Watch(limit=0.1, last=3)
    again.restore(watch.snapshot())
    assert (list(again.recent), again.errors, again.is_alert) == ([True, True, False], 2, True)


# -- diamond -------------------------------------------------------------------------------------------------------------


def test_diamond_joins_both_answers_and_anchors_on_both() -> None:
    run = run_bolt(
        diamond.Join(),
        [
            tuple_of(component="price", order=1, cents=450),
            tuple_of(component="stock", order=2, available=False),
            tuple_of(component="stock", order=1, available=True),
            tuple_of(component="price", order=2, cents=90),
            tuple_of(component="price", order=3, cents=90),
        ],
    )

    assert [(emitted.values, emitted.inputs) for emitted in run.emitted["accepted"]] == [((1, 450), (0, 2))]
    assert [(emitted.values, emitted.inputs) for emitted in run.emitted["rejected"]] == [((2, 90), (3, 1))]
    assert run.unfinished == [4]


def test_diamond_brings_the_result_again_for_an_answer_that_comes_late_to_it() -> None:
    first_price, second_stock, second_price = (
        tuple_of(component="price", order=1, cents=450),
        tuple_of(component="stock", order=1, available=True),
        tuple_of(component="price", order=1, cents=450),
    )

    run = run_bolt(diamond.Join(), [first_price, second_stock, second_price])

    run.assert_all_acked()
    assert [emitted.inputs for emitted in run.emitted["accepted"]] == [(0, 1), (2,)]
    assert run.values("accepted") == [(1, 450), (1, 450)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("event", [PAUSE("1s"), FAIL_NEXT, CRASH("price"), CRASH("join"), CRASH("report"), CRASH])
def test_diamond_takes_every_order_through_both_ways(event: object, seed: int) -> None:
    orders = list(diamond.some_orders(40))
    expected = {
        number: ("accepted" if pieces <= diamond.STOCK[item] else "rejected", diamond.PRICES[item] * pieces)
        for number, item, pieces in orders
    }
    test = TopologyTest(diamond.topology, sources={"orders": [*orders[:20], event, *orders[20:], END]}, seed=seed)

    test.run()

    test.assert_all_acked()
    answers = {order: (stream, cents) for stream in ("accepted", "rejected") for order, cents in test.emitted("join", stream)}
    assert answers == expected
    assert test.dead_letters() == []


def test_diamond_prints_its_sums(capsys: pytest.CaptureFixture[str]) -> None:
    test = TopologyTest(diamond.topology, sources={"orders": [(0, "tea", 2), (1, "pepper", 6), END]})

    test.run()

    assert capsys.readouterr().out.splitlines() == ["accepted: 1 orders, 9.00 in all", "rejected: 1 orders, 18.60 in all"]


# -- enrichment ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_enrichment_retries_what_times_out_and_gives_up_the_unknown(seed: int) -> None:
    test = TopologyTest(partial(enrichment.topology, visitors=40, unknown=2), seed=seed)

    test.run()

    assert sorted(visitor for visitor, _ in test.emitted("enrich")) == list(range(38))
    assert sorted((dead_letter.values, dead_letter.attempts) for dead_letter in test.dead_letters()) == [((38,), 3), ((39,), 3)]
    assert Counter(test.failed()) == Counter([0, 10, 20, 30, *[38] * 3, *[39] * 3])
    assert {error.kind for error in test.errors()} == {"TimeoutError", "LookupError"}
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.DEAD_LETTERS


def test_enrichment_ends_well_when_everybody_is_known() -> None:
    test = TopologyTest(partial(enrichment.topology, visitors=20, unknown=0))

    test.run()

    test.assert_all_acked()
    assert test.outcome is not None and test.outcome.exit_code == 0


def test_enrichment_counts_a_visitor_once(capsys: pytest.CaptureFixture[str]) -> None:
    run_bolt(enrichment.Report(), [(1, "Peru"), (2, "Peru"), (1, "Peru"), (3, "Chile")], fields=("visitor", "country"))

    assert capsys.readouterr().out.split() == ["1", "Chile", "2", "Peru"]


# -- bulk insert ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_bulk_insert_writes_each_order_once_and_only_bad_ones_fail(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    test = TopologyTest(partial(bulk_insert.topology, str(path), orders=60, bad=2, size=10), seed=seed)

    test.run()

    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*), min(number), max(number) FROM orders").fetchone() == (58, 0, 57)
    assert sorted((dead_letter.values, dead_letter.attempts) for dead_letter in test.dead_letters()) == [
        ((58, "oil", None), 2),
        ((59, "rice", None), 2),
    ]
    assert {error.kind for error in test.errors()} == {"IntegrityError"}


@pytest.mark.parametrize("seed", SEEDS)
def test_bulk_insert_writes_each_order_once_whatever_is_killed(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "orders.db"
    rows = [(number, "tea", 450) for number in range(30)]
    test = TopologyTest(
        partial(bulk_insert.topology, str(path), size=4),
        sources={"orders": [*rows[:11], CRASH("insert"), *rows[11:], END]},
        seed=seed,
    )

    test.run()

    test.assert_all_acked()
    assert capsys.readouterr().out.split() == ["tea", "30", "orders", "135.00"]


# -- access log ----------------------------------------------------------------------------------------------------------


def answer(status: int, page: str = "/") -> str:
    return f'10.0.0.1 - - [01/Mar/2026:10:00:00 +0000] "GET {page} HTTP/1.1" {status} 2048'


def test_access_log_reads_the_common_log_format_and_counts_other_lines() -> None:
    run = run_bolt(access_log.Parse(), [(answer(200, "/cart?n=1"),), ("-- log rotated --",)], fields=("line",))

    run.assert_all_acked()
    assert run.values() == [("10.0.0.1", "/cart", 200, 2048)]
    assert run.metrics.counters == {"malformed_lines": 1}
    assert run.metrics.histograms["response_bytes"].count == 1


def test_access_log_tells_when_errors_are_too_many_and_when_they_are_few_again() -> None:
    statuses = [*[200] * 9, 503, 503, *[200] * 10]

    run = run_bolt(access_log.Watch(limit=0.1, last=10), [tuple_of(status=status) for status in statuses])

    assert run.values() == [
        ("too many server errors: 20.0% of the last 10 answers",),
        ("server errors are few again: 10.0% of the last 10 answers",),
    ]
    assert run.metrics.counters == {"server_errors": 2}
    assert run.metrics.gauges == {"error_share": 0.0}


@pytest.mark.parametrize("seed", SEEDS)
def test_access_log_shows_its_metrics_in_the_status(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [answer(200, "/help"), answer(503), "garbage", answer(200, "/help")]
    test = TopologyTest(access_log.topology, sources={"log": [*lines, END]}, seed=seed)

    test.run()

    test.assert_all_acked()
    user = {row["component"]: row["user"] for row in test.status()["components"]}
    assert user["parse"]["counters"] == {"malformed_lines": 1}
    assert user["watch"]["counters"] == {"server_errors": 1}
    assert user["pages"]["gauges"] == {"different_pages": 2}
    assert capsys.readouterr().out.split() == ["2", "4,096", "B", "/help", "1", "2,048", "B", "/"]


def test_access_log_makes_up_a_log_in_which_something_goes_wrong_for_a_while() -> None:
    test = TopologyTest(partial(access_log.topology, lines=5000))

    test.run()

    alerts = [alert for (alert,) in test.emitted("watch")]
    assert alerts[0].startswith("too many server errors")
    assert alerts[-1].startswith("server errors are few again")
    assert isinstance(access_log.topology().component("log").component, IterableSpout)


def test_every_example_is_here() -> None:
    files = {path.stem for path in Path(word_count.__file__).parent.glob("*.py")}

    tested = {"access_log", "bulk_insert", "diamond", "enrichment", "file_orders", "flights", "flights_on_spark", "top_n"}
    with_servers = {
        "delta_orders",
        "iceberg_visits",
        "kafka_orders",
        "kafka_to_postgres",
        "machine_alerts",
        "nats_orders",
        "order_hooks",
        "postgres_orders",
        "rabbit_jobs",
        "redis_orders",
    }
    assert files == {*tested, *with_servers, "word_count", "word_count_batches"}
