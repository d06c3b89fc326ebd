from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.user_code.own_folder import clean_imports, state, write
from topo.errors import TopologyError, UserError
from topo.user_code.copy import copy_code, parse_reference
from topo.user_code.load import load_topology

__all__ = ["clean_imports", "state"]

STREAMS = """
from topo.streams import StreamBuilder
{extra}
def topology(times: int = 2):
    flow = StreamBuilder("streams")
    flow.from_iterable([1]).map(lambda n: n * times).to(print)
    return flow

ready = topology(1)
"""


def test_a_program_of_streams_is_a_topology(state: Path) -> None:
    write("flow.py", source=STREAMS)
    for reference in ("flow.py", "flow.py:ready", "flow.py:ready"):
        loaded = load_topology(copy_code(parse_reference(reference), state).reference).topology
        assert [spec.id for spec in loaded.components] == ["items", "items-steps"]


def test_a_mistake_in_a_program_of_streams_is_reported_when_it_is_loaded(state: Path) -> None:
    write("flow.py", source=STREAMS.replace(".to(print)", ""))
    with pytest.raises(TopologyError, match=r"no operator reads the results of map at flow\.py:6"):
        load_topology(copy_code(parse_reference("flow.py"), state).reference)


@pytest.mark.parametrize("sink", ["seen.append", "set().add", "{}.setdefault", "deque().extend", "lambda one: seen.append(one)"])
def test_a_list_of_this_process_as_a_sink_is_refused_when_it_is_loaded(state: Path, sink: str) -> None:
    """Each worker filled its own list, and that of the user's process stayed empty."""
    extra = "from collections import deque\nseen = []"
    write("flow.py", source=STREAMS.replace(".to(print)", f".to({sink})").replace("{extra}", extra))
    with pytest.raises(
        TopologyError, match=r"^to at flow\.py:7 was given .* a \w+, of which each worker has its own; use collect\(\)"
    ):
        load_topology(copy_code(parse_reference("flow.py"), state).reference)


def test_a_mistake_that_has_its_place_gets_no_second_one(state: Path) -> None:
    write("flow.py", source=STREAMS.replace(".to(print)", ".merge([])"))
    with pytest.raises(UserError, match=r"^merge at flow\.py:\d+ takes a stream; got \[\] \(list\)$"):
        load_topology(copy_code(parse_reference("flow.py"), state).reference)
