"""`collect`: results go to a file in the topology's folder, which `run` reads when the program has ended."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

from topo.api.context import TaskContext
from topo.connectors.json_lines_sink import JsonLinesSink
from topo.errors import UserError
from topo.streams.records import layout_of


class Collected:
    """Results of a stream. Called in the task that has made a record, it returns the text that its sink writes.

    Args:
        record: the type of the results; None where it is not known.
        place: of the call, for the error of a record that cannot be sent.
        merged: the records are of merged streams of several types, for that error.

    Attributes:
        results: filled by `read`.
    """

    def __init__(self, record: Any, place: str, *, merged: bool) -> None:
        self._record, self._place, self._merged = record, place, merged
        self.results: list[Any] = []

    def open(self, _context: Any) -> None:
        """Compile how records become values that have no need of the user's classes."""
        self._pack = layout_of(self._record).keeper(self._place, merged=self._merged)[0]

    def __call__(self, record: Any) -> str:
        return base64.b64encode(pickle.dumps(self._pack(record))).decode()

    def read(self, file: Path) -> None:
        """Replace the results by those in a file, which tasks of this user have written; no file stands for none."""
        unpack = layout_of(self._record).keeper(self._place)[1]
        lines = file.read_bytes().splitlines() if file.exists() else []
        self.results[:] = [unpack(pickle.loads(base64.b64decode(json.loads(line)["value"]))) for line in lines]


class CollectSink(JsonLinesSink):
    """Writes texts to a file that belongs to the topology."""

    def __init__(self) -> None:
        super().__init__("collected")
        self.own_file = ""  # `open` chooses it

    def open(self, context: TaskContext) -> None:
        """Find the folder.

        Raises:
            UserError: workers share none with the process that reads the results.
        """
        if context.folder is None:
            raise UserError("collect() needs a program that runs by run(); in tests use StreamTest.collect")
        self._path = collected_file(context.folder, context.component)
        super().open(context)


def collected_file(folder: Path, component: str) -> Path:
    """Return the file of a sink in the folder of a topology's components."""
    return folder / f"{component}.collected"
