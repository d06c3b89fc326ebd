"""The tree of errors. The class names the party at fault; fields name the fault, its place and the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topo.deprecation import old_names


class TopoError(Exception):
    """Base of every error that topo raises on purpose."""


class UserError(TopoError):
    """The caller did something that cannot work; the message names the fix."""


class ConfigError(UserError):
    """A setting is unknown or has a value that cannot be used."""


class TopologyError(UserError):
    """A topology is wrong. Carries every problem found, not only the first.

    Attributes:
        problems: one sentence each: the mistake, its place, and the fix.
    """

    def __init__(self, problems: list[str] | tuple[str, ...] | str) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return self.problems[0]
        return f"{len(self.problems)} problems:\n" + "\n".join(f"  - {problem}" for problem in self.problems)


class TupleStateError(UserError):
    """A tuple was acked or failed twice, or something was anchored to it after its ack."""


class EmitError(UserError):
    """An emit that the component's declaration does not allow: unknown stream, wrong number of values."""


class UnsupportedValueError(UserError):
    """A value of a tuple cannot be put on the wire, or not be read where it arrives; names component, stream, field and type."""


class UnsupportedStateError(UnsupportedValueError):
    """The state of a component has a value that no checkpoint can store; names the state, the key and the type. The run ends."""


class BlockingCallError(UserError):
    """An asynchronous call blocks the event loop that it shares with others; its traceback shows where."""


class SpoutStalledError(UserError):
    """A spout may emit nothing more until windows close, which themselves wait for its next tuples: a deadlock."""


class LateReplayError(UserError):
    """A failed message was replayed after its window was over."""


class PeerError(TopoError):
    """Another process broke the protocol."""


class FrameError(PeerError):
    """A frame that is malformed, truncated, oversized, foreign or of another protocol version."""


class TopoEnvironmentError(TopoError):
    """The machine lacks something: a free slot, disk space, Java, a package."""


class ResultsLostError(UserError):
    """Results that user code did not take, although it was called several times: the run fails because of them."""


class StagedRowsLostError(TopoEnvironmentError):
    """Rows that a sink had staged for a checkpoint are gone, and were not published. Reported by a sink, it fails the run."""


class RightMissingError(TopoEnvironmentError):
    """A server refuses this user a right: nothing is read or published until it is granted. A drain does not wait for that."""


class SinkBlockedError(TopoEnvironmentError):
    """A sink cannot write, and holds as many rows as it may, or cannot continue with those that it holds. No tuple is at fault.

    Raised by `write` and `pre_commit` of a two-phase sink with `exactly_once`: its process ends, and all tasks go back to the
    last checkpoint.
    """


class NotFoundError(UserError):
    """A name that does not exist here. Carries near misses.

    Attributes:
        suggestions: names close to the one asked for, best first.
    """

    def __init__(self, message: str, suggestions: tuple[str, ...] = ()) -> None:
        self.suggestions = suggestions
        hint = f" Did you mean {', '.join(repr(name) for name in suggestions)}?" if suggestions else ""
        super().__init__(message + hint)


class TopoInternalError(TopoError):
    """An invariant of topo itself is broken. Please report it."""


class CheckpointDamagedError(TopoEnvironmentError):
    """A file of a checkpoint is damaged.

    Attributes:
        file: which one.
        reason: the damage found.
    """

    def __init__(self, file: str, reason: str) -> None:
        self.file = file
        self.reason = reason
        super().__init__(file, reason)

    def __str__(self) -> str:
        return f"{self.file} is damaged: {self.reason}"


class CheckpointRefusedError(UserError):
    """A checkpoint is whole, but of another topology, or of a newer version, or does not fit the components that restore it."""


class CheckpointMissingError(UserError):
    """There is no complete checkpoint where one was expected."""


RENAMED = {
    "BlockingCall": "BlockingCallError",
    "CheckpointDamaged": "CheckpointDamagedError",
    "CheckpointMissing": "CheckpointMissingError",
    "CheckpointRefused": "CheckpointRefusedError",
    "EnvironmentFault": "TopoEnvironmentError",
    "FrameworkBug": "TopoInternalError",
    "NotFound": "NotFoundError",
    "SinkStuck": "SinkBlockedError",
    "SpoutStalled": "SpoutStalledError",
    "StagedRowsLost": "StagedRowsLostError",
    "TooLate": "LateReplayError",
    "ValueNotCarried": "UnsupportedValueError",
}
"""New names by old ones."""

if not TYPE_CHECKING:  # Type checkers would take any attribute for one.
    __getattr__ = old_names(__name__, RENAMED)
