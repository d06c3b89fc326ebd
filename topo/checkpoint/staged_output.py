"""The staged output of a two-phase sink, checkpoint by checkpoint, until it is published.

A token is *staged* from the snapshot that it was made for until it is committed. It is committed when a checkpoint that covers it
is known to be complete: its own, or a later one if its own was aborted, since the barrier of the later one is behind its rows,
too. So every snapshot carries all tokens that are still staged, oldest first, and when a checkpoint is restored those that it
carries are committed. The transaction that is begun is in no checkpoint: a restored one is followed by its rows once more.

Pure but for the sink's own calls. Errors of the sink leave unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from topo.api.two_phase import TwoPhaseSink
from topo.errors import RightMissingError


class StagedOutput:
    """Drives one sink through checkpoints, in the calls of one task's thread.

    `restore` comes first in every epoch, also in the first one, with None when there is no checkpoint: the sink may only be
    written to after it.
    """

    def __init__(self, sink: TwoPhaseSink) -> None:
        self._sink = sink
        self._staged: list[tuple[int, Any]] = []

    @property
    def staged(self) -> int:
        """How many tokens wait to be committed."""
        return len(self._staged)

    def snapshot(self, checkpoint: int) -> Any:
        """End the sink's transaction for a checkpoint, and begin the next one.

        Returns:
            The state for the checkpoint: plain data, small. Nothing in it changes later.

        Raises:
            Exception: the sink's; the checkpoint cannot be taken. The sink has lost nothing, so that the task may continue.
        """
        token = self._call(self._sink.pre_commit)
        if token is not None:
            self._staged.append((checkpoint, token))
        elif not self._staged:
            self._sink.refusal = ""
        self._sink.begin()
        return [[number, token] for number, token in self._staged]

    def complete(self, checkpoint: int) -> None:
        """Publish everything that was staged up to a completed checkpoint, in order. May be called again.

        Raises:
            Exception: the sink's. Unpublished output stays staged: the next `complete` or `restore` tries it again.
        """
        for entry in [entry for entry in self._staged if entry[0] <= checkpoint]:
            self._call(self._sink.commit, entry[1])
            self._sink.refusal = ""
            self._staged.remove(entry)

    def _call(self, step: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return step(*arguments)
        except RightMissingError as error:
            self._sink.refusal = str(error)
            raise

    def restore(self, state: Any | None) -> None:
        """Restore a completed checkpoint: publish its staged output, undo everything else.

        Args:
            state: what `snapshot` returned for it, or what `merged` made of several; None when no checkpoint was completed.

        Raises:
            Exception: the sink's. Nothing may be written before another `restore` has succeeded.
        """
        counted = [(number, token) for number, token in state or ()]
        kept = [_comparable(token) for _, token in counted]
        self._sink.abort(None)
        for entry in list(self._staged):
            if _comparable(entry[1]) not in kept:
                self._sink.abort(entry[1])
                self._staged.remove(entry)
        self._sink.recover([token for _, token in counted])
        self._staged.clear()
        self._sink.begin()


def merged(states: Iterable[Any]) -> Any:
    """Return the states of several tasks as that of one which takes over from them.

    After a change of parallelism the state of task j goes to task j modulo the new parallelism, and to no other: a live task is
    then alone in touching its staged output, and `TwoPhaseSink.recover` relies on that.
    """
    return [entry for state in states for entry in state]


def _comparable(token: Any) -> Any:
    """A token as it is and as it came back from a checkpoint are equal, though lists have become tuples."""
    if isinstance(token, list | tuple):
        return tuple(_comparable(one) for one in token)
    if isinstance(token, dict):
        return {key: _comparable(one) for key, one in token.items()}
    return token
