"""Clicks with the names of users, from a stream of changes to a table of users.

topo run topologies/streams/cdc.py -p changes=users.jsonl -p clicks=clicks.jsonl
"""

import msgspec

from topo import JsonLinesSink
from topo.streams import StreamBuilder


class User(msgspec.Struct):
    id: str
    name: str
    op: str = "u"


class Click(msgspec.Struct):
    user: str
    url: str


class Named(msgspec.Struct):
    url: str
    name: str


def topology(changes: str, clicks: str, out: str = "named.jsonl") -> StreamBuilder:
    flow = StreamBuilder("streams-cdc")
    users = flow.from_files(changes, name="changes").parse_json(User).key_by(lambda u: u.id).latest(deleted=lambda u: u.op == "d")
    by_user = flow.from_files(clicks, name="clicks").parse_json(Click).key_by(lambda click: click.user)
    named = by_user.left_join_table(users, lambda c, user: Named(c.url, user.name if user else "?"), of=Named, name="users")
    named.values().to(JsonLinesSink(out), name="out")
    return flow
