"""The requests of one member of a consumer group; all run on the task's helper thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from topo.connectors.redis.scripts import GIVE_UP
from topo.errors import TopoEnvironmentError

_HISTORY_END = ">"
_MOST_SCRIPTED = 4000
"""Fields and values that a script is given: it passes them on as arguments, of which there may be some 8000."""
_COPY_PAUSE_S = 1.0
"""After a copy that the server has refused."""
_LAG_S = 5.0
"""Between two looks at how many entries wait."""


class Taken(NamedTuple):
    """The outcome of a turn.

    Attributes:
        entries: id, fields and values, and how often it was delivered; 1 for a new one.
        settled: how many of the entries that were done, and given up, the server knows of.
        errors: to report.
        waiting: how many entries no consumer was given, as of the last look; None where that is not known, and 0 but for the
            first member.
    """

    entries: list[tuple[str, Any, int]]
    settled: tuple[int, int]
    errors: list[Exception]
    waiting: int | None

    def __bool__(self) -> bool:
        """Whether the task has something to do about it."""
        return bool(self.entries or self.errors)


class GroupMember:
    """Reads first the entries that its consumer held when it ended, then new ones; takes over those of dead consumers.

    Args:
        client: of the server.
        names: of the stream, the group, and the stream of entries that were given up.
        prefix: of the names of this component's consumers; the task's index follows.
        place: index of the task, and how many there are.
        start: id behind which a new group begins.
        claim_ms: how long an entry is left with a consumer that gives no sign of life.
        clock: monotonic seconds.
        explained: returns an error with the way to mend it.
    """

    def __init__(
        self,
        client: Any,
        names: tuple[str, str, str],
        prefix: str,
        place: tuple[int, int],
        start: str,
        claim_ms: int,
        clock: Callable[[], float],
        explained: Callable[[Exception], Exception] = lambda error: error,
    ) -> None:
        self._client, self._explained = client, explained
        self._stream, self._group, self._dead_stream = names
        self._prefix = prefix
        self._index, self._tasks = place
        self._consumer = f"{prefix}{self._index}"
        self._start = start
        self._claim_ms = claim_ms
        self._clock = clock
        self._has_group = False
        self._history = "0"
        """The last entry of the consumer's own that was read again; then `_HISTORY_END`."""
        self._claim_cursor = "0-0"
        self._claim_at = clock() + claim_ms / 2000
        self._refresh_at = clock() + claim_ms / 3000
        self._copy_at = clock()
        self._waiting: int | None = None if self._index == 0 else 0
        self._lag_at = clock()

    def turn(
        self, done: Sequence[str], given_up: Sequence[tuple[str, Any, str]], held: Sequence[str], room: int, wait_ms: int
    ) -> Taken:
        """Acknowledge, show that held entries are alive, and read at most `room` entries."""
        from redis.exceptions import ResponseError

        errors = list[Exception]()
        try:
            if not self._has_group:
                self._make_group()
            settled = self.settle(done, given_up, errors)
            self._refresh(held)
            entries = self._read(room, wait_ms, errors) if room else []
            self._count_waiting()
        except ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            # Somebody has removed the stream or the group: nothing of what comes may be missed.
            self._has_group, self._start, self._history = False, "0", "0"
            lost = f"consumer group {self._group!r} of stream {self._stream!r} is gone; it is made again, from the first entry on"
            return Taken([], (0, 0), [TopoEnvironmentError(lost)], self._waiting)
        return Taken(entries, settled, errors, self._waiting)

    def settle(self, done: Sequence[str], given_up: Sequence[tuple[str, Any, str]], errors: list[Exception]) -> tuple[int, int]:
        """Acknowledge entries; those that were given up behind their copies. Returns how many of each are settled."""
        from redis.exceptions import ResponseError

        for first in range(0, len(done), 1000):
            self._client.xack(self._stream, self._group, *done[first : first + 1000])
        if self._clock() < self._copy_at:
            return len(done), 0
        for copied, (entry_id, flat, why) in enumerate(given_up):
            about = ("topo-stream", self._stream, "topo-id", entry_id, "topo-error", why)
            try:
                self._copy(entry_id, (*flat, *about))
            except ResponseError as error:
                if "NOGROUP" in str(error):
                    raise
                self._copy_at = self._clock() + _COPY_PAUSE_S
                errors.append(
                    TopoEnvironmentError(
                        f"entry {entry_id} cannot be appended to {self._dead_stream!r}, and it is tried again: "
                        f"{self._explained(error)}"
                    )
                )
                return len(done), copied
        return len(done), len(given_up)

    def _copy(self, entry_id: str, entry: Sequence[Any]) -> None:
        if len(entry) <= _MOST_SCRIPTED:
            self._client.eval(GIVE_UP, 2, self._stream, self._dead_stream, self._group, entry_id, *entry)
            return
        # In two steps: a copy that is not followed by its acknowledgement is made again.
        self._client.execute_command("XADD", self._dead_stream, "*", *entry)
        self._client.xack(self._stream, self._group, entry_id)

    def _make_group(self) -> None:
        from redis.exceptions import ResponseError

        try:
            self._client.xgroup_create(self._stream, self._group, self._start, mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        self._has_group = True

    def _refresh(self, held: Sequence[str]) -> None:
        """Reset the time that held entries have been idle, so that no other member takes them over."""
        if self._clock() < self._refresh_at:
            return
        self._refresh_at = self._clock() + self._claim_ms / 3000
        for first in range(0, len(held), 1000):
            self._client.execute_command(
                "XCLAIM", self._stream, self._group, self._consumer, 0, *held[first : first + 1000], "JUSTID"
            )

    def _read(self, room: int, wait_ms: int, errors: list[Exception]) -> list[tuple[str, Any, int]]:
        if self._history != _HISTORY_END:
            found = self._read_group(room, self._history, 0)
            if found:
                self._history = found[-1][0].decode()
                return self._delivered(found, errors)
            self._history = _HISTORY_END
        if self._clock() >= self._claim_at:
            claimed = self._claim(room, errors)
            if claimed:
                return claimed
        return [(entry_id.decode(), flat, 1) for entry_id, flat in self._read_group(room, ">", wait_ms)]

    def _read_group(self, room: int, behind: str, wait_ms: int) -> Sequence[Any]:
        block = ("BLOCK", wait_ms) if wait_ms else ()
        reply = self._client.execute_command(
            "XREADGROUP", "GROUP", self._group, self._consumer, "COUNT", room, *block, "STREAMS", self._stream, behind
        )
        found: Sequence[Any] = reply[0][1] if reply else ()
        return found

    def _count_waiting(self) -> None:
        if self._index or self._clock() < self._lag_at:
            return
        self._lag_at = self._clock() + _LAG_S
        groups = {found["name"]: found for found in self._client.xinfo_groups(self._stream)}
        # A server older than 7.0 does not count; one whose entries were removed in between may not know.
        self._waiting = groups.get(self._group.encode(), {}).get("lag")

    def _claim(self, room: int, errors: list[Exception]) -> list[tuple[str, Any, int]]:
        """Take over a part of what dead consumers hold; after the last part remove those of tasks that there are no more."""
        reply = self._client.execute_command(
            "XAUTOCLAIM", self._stream, self._group, self._consumer, self._claim_ms, self._claim_cursor, "COUNT", room
        )
        self._claim_cursor, found = reply[0].decode(), reply[1]
        if reply[2:] and reply[2]:
            errors.append(self._lost([entry_id.decode() for entry_id in reply[2]]))
        if self._claim_cursor == "0-0":
            self._claim_at = self._clock() + self._claim_ms / 2000
            if self._index == 0:
                self._remove_consumers()
        return self._delivered(found, errors)

    def _remove_consumers(self) -> None:
        for consumer in self._client.xinfo_consumers(self._stream, self._group):
            name = consumer["name"].decode()
            index = name.removeprefix(self._prefix)
            if name.startswith(self._prefix) and index.isdigit() and int(index) >= self._tasks and consumer["pending"] == 0:
                self._client.xgroup_delconsumer(self._stream, self._group, name)

    def _delivered(self, found: Sequence[Any], errors: list[Exception]) -> list[tuple[str, Any, int]]:
        """Return entries that were delivered before, each with how often; those that were removed are acknowledged."""
        gone = [entry_id.decode() for entry_id, flat in found if flat is None]
        if gone:
            self._client.xack(self._stream, self._group, *gone)
            errors.append(self._lost(gone))
        entries = [(entry_id.decode(), flat) for entry_id, flat in found if flat is not None]
        pipeline = self._client.pipeline(transaction=False)
        for entry_id, _ in entries:
            pipeline.xpending_range(self._stream, self._group, entry_id, entry_id, 1)
        counts = [reply[0]["times_delivered"] if reply else 1 for reply in (pipeline.execute() if entries else ())]
        return [(entry_id, flat, count) for (entry_id, flat), count in zip(entries, counts, strict=True)]

    def _lost(self, ids: Sequence[str]) -> Exception:
        shown = ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")
        return TopoEnvironmentError(
            f"stream {self._stream!r} has lost {len(ids)} entries ({shown}): they were removed before they were done"
        )
