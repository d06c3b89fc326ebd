"""The ten pages with most clicks in ten minutes, each minute: a window over the results of a window.

topo run topologies/streams/top_pages.py -p path=clicks.jsonl
"""

import msgspec

from topo.streams import Sliding, StreamBuilder, Tumbling


class Click(msgspec.Struct):
    user: str
    url: str
    at: int


def topology(path: str) -> StreamBuilder:
    flow = StreamBuilder("streams-top-pages")
    clicks = flow.from_files(path).parse_json(Click).with_event_time(lambda click: click.at, disorder="5s")
    counts = clicks.key_by(lambda click: click.url, parallelism=2).window(Sliding("10m", "1m")).count(name="clicks")
    counts.entries().gather().window(Tumbling("1m")).top_n(10, by=lambda page: page[1].value, name="top").values().to(print)
    return flow
