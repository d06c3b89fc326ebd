from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from topo.api.tuples import Origin, Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.checkpoint.staged_output import StagedOutput, merged

ORIGIN = Origin("source", 1, fields=("n",))


class Written(TwoPhaseSink):
    """Notes its calls; refuses the names in `refused`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []
        self.refused: set[Any] = set()

    def _call(self, name: str, *values: Any) -> None:
        call = (name, *values)
        self.calls.append(call)
        if call in self.refused:
            raise OSError(name)

    def begin(self) -> None:
        """Start with nothing."""
        self.rows: list[int] = []
        self._call("begin")

    def write(self, tup: Tuple) -> None:
        """Keep the number."""
        self.rows.append(tup["n"])

    def pre_commit(self) -> Any:
        """The token is the rows themselves."""
        self._call("pre_commit")
        return self.rows or None

    def commit(self, token: Any) -> None:
        """Say so."""
        self._call("commit", tuple(token))

    def abort(self, token: Any) -> None:
        """Say so."""
        self._call("abort", token if token is None else tuple(token))

    def recover(self, tokens: Sequence[Any]) -> None:
        """Say so, and commit."""
        self._call("recover", len(tokens))
        super().recover(tokens)

    def taken(self) -> list[Any]:
        """The calls since the last time."""
        calls, self.calls = self.calls, []
        return calls


def begun() -> tuple[Written, StagedOutput]:
    sink = Written()
    output = StagedOutput(sink)
    output.restore(None)
    assert sink.taken() == [("abort", None), ("recover", 0), ("begin",)]
    return sink, output


def staged(sink: Written, output: StagedOutput, *checkpoints: int) -> Any:
    """Each checkpoint covers one row more, its own number."""
    for checkpoint in checkpoints:
        sink.write(Tuple((checkpoint,), ORIGIN))
        state = output.snapshot(checkpoint)
    sink.taken()
    return state


def test_a_snapshot_ends_a_transaction_and_begins_the_next() -> None:
    sink, output = begun()
    sink.write(Tuple((1,), ORIGIN))
    assert output.snapshot(1) == [[1, [1]]]
    assert sink.taken() == [("pre_commit",), ("begin",)]
    assert output.snapshot(2) == [[1, [1]]]
    assert output.staged == 1


def test_a_state_does_not_change_when_later_checkpoints_are_taken_and_completed() -> None:
    sink, output = begun()
    state = staged(sink, output, 1, 2)
    staged(sink, output, 3)
    output.complete(3)
    assert state == [[1, [1]], [2, [2]]]


def test_a_completed_checkpoint_publishes_those_before_it_in_order_and_none_after_it() -> None:
    sink, output = begun()
    staged(sink, output, 1, 2, 3)
    output.complete(2)
    assert sink.taken() == [("commit", (1,)), ("commit", (2,))]
    output.complete(2)
    output.complete(1)
    assert sink.taken() == []
    output.complete(3)
    assert sink.taken() == [("commit", (3,))]


def test_what_could_not_be_published_is_tried_again_at_the_next_completion() -> None:
    sink, output = begun()
    staged(sink, output, 1, 2, 3)
    sink.refused = {("commit", (2,))}
    with pytest.raises(OSError, match="commit"):
        output.complete(3)
    assert sink.taken() == [("commit", (1,)), ("commit", (2,))]
    assert staged(sink, output, 4) == [[2, [2]], [3, [3]], [4, [4]]]
    sink.refused.clear()
    output.complete(4)
    assert sink.taken() == [("commit", (2,)), ("commit", (3,)), ("commit", (4,))]


def test_a_snapshot_that_fails_leaves_the_transaction_to_the_next_one() -> None:
    sink, output = begun()
    sink.write(Tuple((1,), ORIGIN))
    sink.refused = {("pre_commit",)}
    with pytest.raises(OSError, match="pre_commit"):
        output.snapshot(1)
    assert output.staged == 0
    sink.refused.clear()
    sink.write(Tuple((2,), ORIGIN))
    assert output.snapshot(2) == [[2, [1, 2]]]


def test_a_restore_undoes_what_is_not_in_the_state_and_publishes_what_is() -> None:
    sink, output = begun()
    staged(sink, output, 1, 2, 3)
    output.restore(((1, (1,)), (2, (2,))))
    assert sink.taken() == [
        ("abort", None),
        ("abort", (3,)),
        ("recover", 2),
        ("commit", (1,)),
        ("commit", (2,)),
        ("begin",),
    ]
    assert output.staged == 0
    output.complete(3)
    assert sink.taken() == []


def test_without_a_checkpoint_everything_is_undone() -> None:
    sink, output = begun()
    staged(sink, output, 1, 2)
    output.restore(None)
    assert sink.taken() == [("abort", None), ("abort", (1,)), ("abort", (2,)), ("recover", 0), ("begin",)]


@pytest.mark.parametrize("step", [("abort", None), ("abort", (2,)), ("commit", (1,)), ("begin",)])
def test_a_restore_that_failed_can_be_repeated(step: Any) -> None:
    sink, output = begun()
    state = staged(sink, output, 1)
    staged(sink, output, 2)
    sink.refused = {step}
    with pytest.raises(OSError, match=step[0]):
        output.restore(state)
    sink.taken()
    sink.refused.clear()
    output.restore(state)
    calls = sink.taken()
    assert ("commit", (1,)) in calls
    assert ("commit", (2,)) not in calls
    assert calls[-1] == ("begin",)


def test_a_token_is_recognised_though_its_lists_have_become_tuples() -> None:
    class Nested(Written):
        def pre_commit(self) -> Any:
            """A token of many kinds."""
            return {"files": [["a", 1]], "rows": self.rows}

        def commit(self, token: Any) -> None:
            """Say so."""
            self._call("commit", token["rows"])

        def abort(self, token: Any) -> None:
            """Say so."""
            self._call("abort", token)

    sink = Nested()
    output = StagedOutput(sink)
    output.restore(None)
    staged(sink, output, 1)
    output.restore([[1, {"files": (("a", 1),), "rows": (1,)}]])
    assert [call for call in sink.taken() if call[0] == "abort"] == [("abort", None)]


def test_states_of_several_tasks_are_taken_over_one_after_the_other() -> None:
    assert merged([((1, "a"), (2, "b")), (), [[2, "c"]]]) == [(1, "a"), (2, "b"), [2, "c"]]
    assert merged([]) == []
    sink, output = begun()
    output.restore(merged([((1, (1,)), (2, (2,))), ((1, (10,)),)]))
    assert [call for call in sink.taken() if call[0] == "commit"] == [("commit", (1,)), ("commit", (2,)), ("commit", (10,))]
