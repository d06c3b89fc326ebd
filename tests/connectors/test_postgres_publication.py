"""A table that leaves its publication while a PostgresCdcSpout reads: the loss is reported, with what mends it."""

from __future__ import annotations

from tests.connectors.test_postgres_cdc import Changes, changes, pytestmark

__all__ = ["changes", "pytestmark"]


def test_a_table_that_leaves_its_publication_is_reported_once(changes: Changes) -> None:
    changes.run("create table T_b (id int primary key)".replace("T_b", f"{changes.name}_b"))
    changes.run(f"alter publication T add table {changes.name}_b")
    harness = changes.start()
    changes.run("alter publication T drop table T")
    changes.insert(1)
    for _ in range(5):
        harness.clock.advance("61s")
        harness.turns(2)
    (error,) = harness.errors
    assert "database '" in str(error) and f"table public.{changes.name} has left publication {changes.name!r}: " in str(error)
    assert f"alter publication ... add table public.{changes.name}, and read it again" in str(error)
    changes.run("alter publication T add table T")
    changes.insert(2)
    assert changes.numbers(1) == [2]


def test_a_table_that_was_dropped_has_no_rows_to_miss(changes: Changes) -> None:
    other = f"{changes.name}_b"
    changes.run(f"create table {other} (id int primary key)")
    changes.run(f"alter publication T add table {other}")
    harness = changes.start()
    changes.run(f"drop table {other}")
    for _ in range(3):
        harness.clock.advance("61s")
        harness.turns(2)
    assert harness.errors == []
