"""`HttpSink`, whose requests run beside each other, keeps the contract of sinks: a real receiver notes rows in the folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.connectors.http_receiver import Got, receiving
from tests.servers.server import need
from topo import HttpSink
from topo.testing.contracts import AtLeastOnceSinkContract
from topo.testing.contracts.killing import Steps

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("http"), pytest.mark.timeout(600)]


def note(got: Got) -> tuple[int, dict[str, str]]:
    """Append the number of a row to the file that the request names; 503 where that cannot be written."""
    try:
        with Path(got.path).open("a") as file:
            file.write(f"{json.loads(got.body)['n']}\n")
    except OSError:
        return 503, {}
    return 200, {}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    need(("aiohttp",))
    with receiving() as receiver:
        receiver.usual = note
        yield receiver.url


class TestHttpSink(AtLeastOnceSinkContract):
    """Rows overtake each other."""

    options: ClassVar[dict[str, Any]] = {}
    most_kills = 12

    @pytest.fixture(autouse=True)
    def _receiver(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = url
        # The receiver answers at once: the pauses between requests, on the manual clock, need no longer wait in real time.
        monkeypatch.setattr("topo.testing.in_process.PATIENCE_S", 1.5)

    def sink(self, folder: Path) -> HttpSink:
        return HttpSink(f"{self.url}{folder}/rows", **self.options)

    def rows(self, folder: Path) -> list[int]:
        path = folder / "rows"
        return sorted(map(int, path.read_text().split())) if path.exists() else []

    def count_steps(self, package: str, steps: Steps) -> None:
        """A process is killed in front of a request, and when it was answered."""
        import aiohttp

        plain = aiohttp.ClientSession._request

        async def counted(*args: Any, **options: Any) -> Any:
            steps.step()
            answer = await plain(*args, **options)
            steps.step()
            return answer

        aiohttp.ClientSession._request = counted


class TestRequestsByKey(TestHttpSink):
    """Rows of one key are in order."""

    options: ClassVar[dict[str, Any]] = {"key": lambda _tup: "all"}

    def rows(self, folder: Path) -> list[int]:
        path = folder / "rows"
        return list(map(int, path.read_text().split())) if path.exists() else []
