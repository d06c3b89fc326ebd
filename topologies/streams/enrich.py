"""Clicks with the country of their user, by HTTP: many calls in flight, each made again when it fails.

topo run topologies/streams/enrich.py -p path=clicks.jsonl -p service=http://127.0.0.1:8000
"""

import asyncio
import json
from urllib.request import urlopen

import msgspec

from topo import FixedDelayRetry, JsonLinesSink
from topo.streams import StreamBuilder


class Click(msgspec.Struct):
    user: str
    url: str


class Located(msgspec.Struct):
    user: str
    url: str
    country: str


def topology(path: str, service: str, out: str = "located.jsonl") -> StreamBuilder:
    async def located(click: Click) -> Located:
        answer = await asyncio.to_thread(lambda: urlopen(f"{service}/users/{click.user}", timeout=5).read())
        return Located(click.user, click.url, json.loads(answer)["country"])

    flow = StreamBuilder("streams-enrich")
    clicks = flow.from_files(path).parse_json(Click)
    clicks.async_map(located, ordered=False, retry=FixedDelayRetry(3, "100ms"), of=Located).to(JsonLinesSink(out), name="out")
    return flow
