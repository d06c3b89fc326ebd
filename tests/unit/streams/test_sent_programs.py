"""Programs of a notebook go to their workers as values, with the classes of their records, which no worker can import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypedDict

from topo.streams import StreamBuilder
from topo.user_code.copy import pickle_topology


def test_a_class_that_was_read_from_json_or_is_a_part_of_a_record_can_be_sent(tmp_path: Path) -> None:
    @dataclass
    class Place:
        name: str

    class Pair(NamedTuple):
        first: int
        second: int

    class Page(TypedDict):
        url: str

    flow = StreamBuilder("program")
    places = flow.from_iterable(["{}"]).parse_json(Place)
    pairs = places.map(lambda place: [Pair(1, len(place.name))], of=list[Pair]).rebalance(parallelism=1)
    pairs.map(lambda _pairs: Page(url="/"), of=dict[str, Page]).rebalance(parallelism=1).to(print)
    pickle_topology(flow.build(), tmp_path, flow.held_values())
