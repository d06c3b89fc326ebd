"""Checks the message ids of a spout. A message whose id cannot be used is refused: not sent, reported, and counted.

Every id has to be hashable. Those of a `RetryingSpout` are positions in its source, besides: each is later than the one before,
and is the same value when it is read back from storage; so a restart continues behind the last message that is done.
With `exactly_once` the ids of other spouts are stored, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import chain
from operator import lt
from types import NoneType
from typing import Any

from topo.dead_letters.payload import in_words
from topo.errors import EmitError, FrameError, UnsupportedValueError
from topo.hot import ATOMS
from topo.wire.codec import Codec

_HAVE_NAN = frozenset({float, Decimal})
_MAY_NOT_FIT = frozenset((int, str, tuple))
_SORTED_AT_ONCE = frozenset((int, str, bytes))
"""Types with a total order, whose lists `sorted` checks in a third of the instructions of a comparison by `lt` each."""


class MessageIds:
    """Judges the ids of one spout task, in the order of emission over all its streams.

    Args:
        component: the spout's id, for errors.
        codec: what positions are stored with.
        are_positions: whether ids are positions in the source.
        are_stored: whether ids are stored, as positions and the ids in checkpoints are.
        is_open: whether a message with that id is being processed.

    Attributes:
        is_ordered: whether positions come in the order that they have as values; not where a script of a test names messages.
    """

    def __init__(
        self, component: str, codec: Codec, *, are_positions: bool, are_stored: bool, is_open: Callable[[Any], bool]
    ) -> None:
        self._component = component
        self._codec = codec
        self._are_positions = are_positions
        self._are_stored = are_stored
        self._is_open = is_open
        self._last: Any = None
        self.is_ordered = True

    def restart(self) -> None:
        """The spout reads on from another position."""
        self._last = None

    def refused(self, ids: list[Any]) -> dict[int, EmitError]:
        """Return the places of those ids that cannot be used, and why; takes note of the others."""
        if self._are_fine(ids):
            if self._are_positions and ids:
                self._last = ids[-1]
            return {}
        seen: set[Any] = set()
        return {place: EmitError(why) for place, one in enumerate(ids) if (why := self._fault(one, seen))}

    def _are_fine(self, ids: list[Any]) -> bool:
        """Judge a whole batch at once; False when its ids have to be checked one by one."""
        try:
            if not self._are_positions:
                deque(map(hash, ids), maxlen=0)
                return not self._are_stored or (_are_plain(ids, kinds := set(map(type, ids))) and self._are_packable(ids, kinds))
            kinds = set(map(type, ids))
            # NaN of a decimal raises where it is compared.
            if not self.is_ordered or NoneType in kinds or not _are_plain(ids, kinds):
                return False
            if len(kinds) == 1 and kinds <= _SORTED_AT_ONCE:
                in_order = len(set(ids)) == len(ids) and sorted(ids) == ids
            else:
                in_order = all(map(lt, ids, ids[1:]))
            in_order = in_order and (self._last is None or not ids or bool(self._last < ids[0]))
            # The ends of integers in order are the least and the greatest.
            return in_order and self._are_packable([*ids[:1], *ids[-1:]] if kinds == {int} else ids, kinds)
        except TypeError:
            return False

    def _are_packable(self, ids: list[Any], kinds: set[type]) -> bool:
        """Whether plain ids can be stored: an integer may be too large, a string have a lone surrogate, a tuple be too deep."""
        return kinds.isdisjoint(_MAY_NOT_FIT) or not self._codec.pack_or_split([tuple(ids)]).rejected

    def _fault(self, one: Any, seen: set[Any]) -> str:
        """Return the mistake in an id, or ""; then it is among the seen ones, and the next one has to be later."""
        who = f"component {self._component!r} emitted"
        if one is None:
            return f"{who} without a message id; a RetryingSpout gives every message one" if self._are_positions else ""
        try:
            hash(one)
        except TypeError:
            return f"{who} with {_named(one)}, which is not hashable; use an int, a string or a tuple of these"
        if self._are_stored and not self._returns(one):
            fix = "use ints of 64 bits, strings that UTF-8 can carry, or tuples of these"
            return f"{who} with {_named(one)}, which cannot be stored as it is; {fix}"
        if not self._are_positions:
            return ""
        if self._is_open(one) or one in seen:
            return f"message id {in_words(one)} was emitted again before it was done; give every message its own id"
        if self.is_ordered and self._last is not None and not _is_later(one, self._last):
            return (
                f"{who} at position {in_words(one)} after {in_words(self._last)}; the message ids of a RetryingSpout are "
                "positions, each later than the one before: take Spout for ids without an order"
            )
        self._last = one
        seen.add(one)
        return ""

    def _returns(self, position: Any) -> bool:
        try:
            found = self._codec.unpack_value(self._codec.pack_value(position))
        except (UnsupportedValueError, FrameError):
            return False
        return bool(found == position)


def _named(one: Any) -> str:
    # The `repr` of user code may raise, and so does that of an integer with more than 4300 digits.
    return f"message id {in_words(one)} ({type(one).__name__})"


def _is_later(one: Any, than: Any) -> bool:
    """Whether a position is behind another one; True for positions that cannot be compared."""
    try:
        return bool(than < one)
    except TypeError:
        return True


def _are_plain(values: Sequence[Any], kinds: set[type]) -> bool:
    """Whether values, of these types, come back as they are: strings, numbers but NaN, moments, and tuples of these."""
    while True:
        if not kinds.isdisjoint(_HAVE_NAN) and any(map(_is_nan, values)):
            return False
        if tuple not in kinds:
            return kinds <= ATOMS
        values = list(chain.from_iterable([one for one in values if type(one) is tuple]))
        kinds = kinds - {tuple} | set(map(type, values))


def _is_nan(one: Any) -> bool:
    return bool(one.is_nan() if type(one) is Decimal else type(one) is float and one != one)
