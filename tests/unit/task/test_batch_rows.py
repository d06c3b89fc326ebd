"""Rows of column batches: they share the edge of their batch in each of its trees."""

from __future__ import annotations

from functools import reduce
from operator import xor
from typing import Any

from topo import ColumnBatch
from topo.api.tuples import Origin
from topo.errors import UnsupportedValueError
from topo.hot import Ids, pack_counts, pack_words
from topo.task.batch import Batch
from topo.task.batch_rows import unbatched
from topo.wire.codec import MAX_ELEMENTS, Codec
from topo.wire.frames import Anchoring, Columns, SenderStamp, data_frame

ORIGIN = Origin("a", 1, "default", ("n", "m"), columnar=True)


def rows_of(columns: Columns) -> Any:
    frame = data_frame(SenderStamp(1, 1, 1), 2, 3, 0, columns)
    return unbatched(frame, Batch(frame, columns.rows, ORIGIN), Codec(), Ids(b"seed"), "b")


def batch(*numbers: int, **more: Any) -> tuple[ColumnBatch]:
    return (ColumnBatch.of({"n": list(numbers), "m": ["x"] * len(numbers)}, **more),)


def test_the_edges_of_the_rows_add_up_to_the_edge_of_the_batch() -> None:
    made, unfit = rows_of(Columns(Anchoring.SINGLE, [batch(1, 2, 3), batch(4)], pack_words([10, 11]), pack_words([100, 101])))
    assert unfit == [] and made.rows == [(1, "x"), (2, "x"), (3, "x"), (4, "x")]
    ids = [made.ids_at(index) for index in range(4)]
    assert [roots for roots, _ in ids] == [(10,), (10,), (10,), (11,)]
    assert reduce(xor, [edge for _, (edge,) in ids[:3]]) == 100 and ids[3][1] == (101,)
    assert len({edge for _, (edge,) in ids}) == 4


def test_so_they_do_in_each_tree_of_a_batch_with_several_roots() -> None:
    columns = Columns(
        Anchoring.MULTI, [batch(1, 2), batch(3)], pack_words([10, 11]), pack_words([100, 101]), b"", pack_counts([2, 0])
    )
    made, _ = rows_of(columns)
    (first, edges), (second, others), last = (made.ids_at(index) for index in range(3))
    assert first == second == (10, 11) and last == ((), ())
    assert [edges[0] ^ others[0], edges[1] ^ others[1]] == [100, 101]


def test_rows_have_the_timestamps_of_their_batch() -> None:
    made, _ = rows_of(Columns(Anchoring.NONE, [batch(1, 2, timestamps=[5, 6]), batch(3)]))
    assert made.stamps == [5, 6, None]
    assert rows_of(Columns(Anchoring.NONE, [batch(3)]))[0].stamps is None


def test_a_repeated_call_gets_nested_values_as_they_arrived() -> None:
    made, _ = rows_of(Columns(Anchoring.NONE, [(ColumnBatch.of({"n": [{"k": 1}], "m": [[1, 2]]}),)]))
    assert made.rows == [({"k": 1}, (1, 2))]
    made.rows[0][0]["k"] = 2
    assert made.unchanged(0, Codec()) == ({"k": 1}, (1, 2))


def test_a_batch_with_values_that_no_row_can_have_fails_alone() -> None:
    bad = ColumnBatch.of({"n": [object()], "m": [1]})
    made, (unfit,) = rows_of(Columns(Anchoring.SINGLE, [batch(1), (bad,)], pack_words([10, 11]), pack_words([100, 101])))
    assert made.rows == [(1, "x")] and unfit.roots == (11,)
    assert isinstance(unfit.error, UnsupportedValueError) and "component 'b': rows of a batch from 'a'" in str(unfit.error)


def test_rows_of_a_batch_may_have_more_elements_together_than_a_frame() -> None:
    value = {"k": (0,) * 1000}
    made, unfit = rows_of(Columns(Anchoring.NONE, [(ColumnBatch.of({"n": [value] * (MAX_ELEMENTS // 1000), "m": [1] * 1048}),)]))
    assert unfit == [] and made.count == 1048
    assert made.rows[-1] == made.unchanged(1047, Codec()) == (value, 1)
