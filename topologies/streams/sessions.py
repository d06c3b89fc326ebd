"""Visits of a web site: clicks of a user that follow each other within half an hour. Late clicks go to another file.

topo run topologies/streams/sessions.py -p path=clicks.jsonl
"""

import msgspec

from topo import JsonLinesSink
from topo.streams import Session, SideOutput, StreamBuilder


class Click(msgspec.Struct):
    user: str
    url: str
    at: int


class Visit(msgspec.Struct):
    user: str
    start: int
    end: int
    clicks: int


LATE = SideOutput("late", Click)


def topology(path: str, out: str = "visits.jsonl", late: str = "late.jsonl") -> StreamBuilder:
    flow = StreamBuilder("streams-sessions").config(checkpoint_interval="1s")
    clicks = flow.from_files(path).parse_json(Click).with_event_time(lambda click: click.at, disorder="5s", idle="1m")
    visits = clicks.key_by(lambda c: c.user, parallelism=2).window(Session("30m"), late=LATE).count(name="visits")
    visits.map_keyed(lambda user, w: Visit(user, w.start, w.end, w.value), of=Visit).to(JsonLinesSink(out), name="out")
    visits.side(LATE).to(JsonLinesSink(late), name="late")
    return flow
