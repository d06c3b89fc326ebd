"""The spouts with partitions keep the contract of `topo.testing.contracts`, which connectors of others use as well."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from topo import FilesSpout, MemoryPartitions, MemorySpout, PartitionedSpout
from topo.testing.contracts import PartitionedSpoutContract, SourceUnderTest

ROOT = Path(__file__).resolve().parents[2]


class InMemory(SourceUnderTest):
    """Records are JSON."""

    def __init__(self) -> None:
        self.kept = MemoryPartitions()

    def spout(self) -> PartitionedSpout:
        return MemorySpout(self.kept, ("n",), decode=json.loads)

    def add(self, name: str, numbers: Sequence[int]) -> None:
        self.kept.add(name, map(json.dumps, numbers))

    def append(self, name: str, numbers: Sequence[int]) -> None:
        self.kept.append(name, *map(json.dumps, numbers))

    def remove(self, name: str) -> None:
        self.kept.remove(name)

    def poison(self, name: str, numbers: Sequence[int | None]) -> None:
        self.kept.add(name, ["{" if number is None else json.dumps(number) for number in numbers])


class TestMemorySpout(PartitionedSpoutContract):
    def source(self, folder: Path) -> SourceUnderTest:
        return InMemory()


class Files(SourceUnderTest):
    """Files of JSON lines; complete as soon as they are written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def spout(self) -> PartitionedSpout:
        return FilesSpout(self.folder, format="json", fields=("n",), settle="0s")

    def add(self, name: str, numbers: Sequence[int | None]) -> None:
        lines = ["{" if number is None else json.dumps({"n": number}) for number in numbers]
        (self.folder / f"{name}.json").write_text("".join(f"{line}\n" for line in lines))

    def remove(self, name: str) -> None:
        (self.folder / f"{name}.json").unlink()

    def poison(self, name: str, numbers: Sequence[int | None]) -> None:
        self.add(name, numbers)


class FilesThatGrow(Files):
    """The same, followed."""

    def spout(self) -> PartitionedSpout:
        return FilesSpout(self.folder, format="json", fields=("n",), follow=True)

    def append(self, name: str, numbers: Sequence[int]) -> None:
        with (self.folder / f"{name}.json").open("a") as file:
            file.writelines(json.dumps({"n": number}) + "\n" for number in numbers)


class TestFilesThatGrow(PartitionedSpoutContract):
    def source(self, folder: Path) -> SourceUnderTest:
        return FilesThatGrow(folder)


class TestFilesSpout(PartitionedSpoutContract):
    def source(self, folder: Path) -> SourceUnderTest:
        return Files(folder)


def _documented() -> dict[str, Any]:
    """The connector of docs/connectors.md, and its tests."""
    names: dict[str, Any] = {"__name__": "documented"}
    for block in re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "connectors.md").read_text(), re.MULTILINE | re.DOTALL):
        exec(block, names)
    return names


class TestDocumentedSpout(PartitionedSpoutContract):
    def source(self, folder: Path) -> SourceUnderTest:
        made: SourceUnderTest = _documented()["TestPages"]().source(folder)
        return made
