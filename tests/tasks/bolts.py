"""The two kinds of bolt whose `execute` takes one input, and functions that either can run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.components import Manual, Plain, Scripted, Sink, chain
from tests.tasks.solo import Solo

KINDS = pytest.mark.parametrize("kind", [Plain, Manual])


def between(*, is_open: bool = True, **settings: Any) -> Solo:
    """The task of a bolt b that passes values on, between spout a and sink c, with the acker as task 4."""
    return Solo(chain(Scripted(), Plain(), Sink(), **settings), "b", is_open=is_open)


def relay(kind: Any, run: Any = None, outputs: Any = ("value",), **settings: Any) -> tuple[Any, Solo]:
    """A bolt b between spout a and sink c, and its task."""
    bolt = kind(run, outputs)
    return bolt, Solo(chain(Scripted(), bolt, Sink(), **settings), "b")


def emit(tup: Any, collector: Any, *values: Any, **more: Any) -> None:
    """Emit, anchored on the input, with either collector."""
    if hasattr(collector, "ack"):
        more["anchors"] = tup
    collector.emit(values, **more)


def done(tup: Any, collector: Any) -> None:
    """Ack the input where the engine does not."""
    if hasattr(collector, "ack"):
        collector.ack(tup)
