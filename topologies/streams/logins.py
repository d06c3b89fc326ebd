"""Users who log in after three failures in a row within a minute: a list for each user.

topo run topologies/streams/logins.py -p path=logins.jsonl
"""

import msgspec

from topo.streams import KeyedList, KeyedProcess, StreamBuilder, StreamContext, StreamOutput


class Login(msgspec.Struct):
    user: str
    ok: bool
    at: int


class ThreeFailures(KeyedProcess[str, Login, str]):
    failed = KeyedList(int)

    def process(self, record: Login, context: StreamContext[str], out: StreamOutput[str]) -> None:
        recent = [at for at in self.failed.get() if at > record.at - 60_000]
        self.failed.clear()
        if record.ok and len(recent) >= 3:
            out.emit(f"{context.key}: {len(recent)} failures, then a login")
        for at in () if record.ok else (*recent, record.at):
            self.failed.add(at)


def topology(path: str) -> StreamBuilder:
    flow = StreamBuilder("streams-logins")
    logins = flow.from_files(path).parse_json(Login)
    logins.key_by(lambda login: login.user).process(ThreeFailures(), of=str, name="failures").values().to(print)
    return flow
