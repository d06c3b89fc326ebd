"""Watch a running topology: taps, traces, profiles and log levels, for the command line and the page.

    with observe(folder, "tap", "count", rate=5, for_s=60) as seen:
        while not (answer := seen.poll())["ended"]:
            ...

Nothing has to be prepared when the topology is submitted. Who stops asking ends an observation, 10 s later at the latest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from topo.errors import TopoEnvironmentError, TopoError
from topo.master_process.client import Client
from topo.storage.state_folder import TopologyFolder

DEADLINE_S = 10.0


class Observation:
    """An observation that is under way.

    Args:
        client: of its topology.
        answer: of the master to `observe`.

    Attributes:
        term: of the master.
        tasks: of a trace: component and index by task.
        is_lost: whether a poll had no answer.
    """

    def __init__(self, client: Client, answer: Mapping[str, Any], deadline_s: float) -> None:
        self._client = client
        self._deadline_s = deadline_s
        self.id: int = answer["id"]
        self.term: int = answer["term"]
        self.tasks = {int(task): (str(component), int(index)) for task, (component, index) in answer.get("tasks", {}).items()}
        self._last = 0
        self.is_lost = False

    def poll(self) -> dict[str, Any]:
        """Return the rows since the last call (of a profile all stacks so far), and the counts since the start.

        Raises:
            UserError: it has ended, since it was not asked for during 10 s.
            Unreachable: the topology has ended.
            AnswerTimeout: its master does not answer.
        """
        try:
            answer: dict[str, Any] = self._client.request("observed", self._deadline_s, id=self.id, after=self._last)
        except TopoEnvironmentError:
            self.is_lost = True
            raise
        self._last = answer.pop("last")
        return answer


@contextmanager
def observe(
    folder: TopologyFolder, kind: str, component: str, *, for_s: float, deadline_s: float = DEADLINE_S, **spec: Any
) -> Iterator[Observation]:
    """Watch a component, or with a trace messages on their way through all components.

    Args:
        kind: "tap", "trace" or "profile".
        component: "" for a trace.
        for_s: seconds.
        spec: of a tap `rate` (rows a second), `direction` ("out" or "in"), `stream`, `where`; of a trace `rate` (messages a
            second), `spout` ("": all), `settle_s` (at the end, in which no more begin); of a profile `rate` (samples a second),
            `clock` ("wall" or "cpu"), `lines`; of tap and profile `index`, a task of the component.

    Raises:
        UserError: it cannot be watched so; the message names the reason.
        Unreachable: the topology does not run.
    """
    client = Client.of(folder)
    answer = client.request("observe", deadline_s, kind=kind, component=component, spec=spec, for_s=for_s)
    seen = Observation(client, answer, deadline_s)
    try:
        yield seen
    finally:
        # That of a topology that has ended has ended with it.
        if not seen.is_lost:
            with suppress(TopoError):
                client.request("unobserve", deadline_s, id=answer["id"])


def log_levels(
    folder: TopologyFolder,
    levels: Mapping[str, str] | None = None,
    component: str = "",
    for_s: float = 600.0,
    deadline_s: float = DEADLINE_S,
) -> list[dict[str, Any]]:
    """Change log levels by logger ("" is the root) for a while, in the workers of a component or in all.

    Returns the levels that are changed. Raises as `observe`.
    """
    client = Client.of(folder)
    if levels is not None:
        spec = {"levels": dict(levels)}
        client.request("observe", deadline_s, kind="log-level", component=component, spec=spec, for_s=for_s)
    return list(client.request("log_levels", deadline_s))
