"""Which events and messages of workers the master takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import pytest

from tests.unit.master.playbook import Play, running, small_plan
from topo.master.events import MasterEvent
from topo.wire.control import ControlMessage, FromWorker, Observed


class Unknown(ControlMessage, frozen=True):
    """A message that no worker sends."""


@dataclass(frozen=True)
class UnknownEvent:
    """An event that the loop does not have."""


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_master_has_a_handler_for_each_event_and_message(delivery: str) -> None:
    master = Play(small_plan(delivery=delivery)).master
    assert set(get_args(MasterEvent)) == set(master._handlers)
    # Rows of observations decide nothing: the loop keeps them.
    assert set(get_args(FromWorker)) - {Observed} == set(master._message_handlers)


def test_unknown_message_or_event_is_no_silent_loss() -> None:
    play = running()
    message: Any = Unknown()
    event: Any = UnknownEvent()
    with pytest.raises(KeyError):
        play.receives(1, message)
    with pytest.raises(KeyError):
        play.do(event)
