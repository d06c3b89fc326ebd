"""Data on the wire and on disk keeps its bytes: frames, control messages, manifests, parts of checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.golden import wire

GOLDEN = Path(__file__).parent / "golden"
FRAMES = json.loads((GOLDEN / "frames.json").read_text())
CONTROL = json.loads((GOLDEN / "control.json").read_text())
PARTS = sorted(GOLDEN.glob("savepoints/*/*/*.part"))
MANIFESTS = sorted(GOLDEN.glob("savepoints/*/*/manifest.json"))


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_has_its_bytes_and_its_meaning(name: str) -> None:
    stored, meaning = FRAMES[name]
    assert wire.frame_bytes(wire.frames()[name]).hex() == stored
    assert wire.frame_meaning(bytes.fromhex(stored)) == meaning


@pytest.mark.parametrize("name", CONTROL)
def test_a_control_message_has_its_bytes_and_its_meaning(name: str) -> None:
    stored, meaning = CONTROL[name]
    message, read = wire.control_messages()[name]
    assert wire.control_bytes(message).hex() == stored
    assert repr(read(bytes.fromhex(stored))) == meaning


def test_every_frame_and_message_is_stored() -> None:
    assert set(wire.frames()) == set(FRAMES) and set(wire.control_messages()) == set(CONTROL)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.parts[-3])
def test_a_stored_manifest_is_read_and_written_as_it_was(path: Path) -> None:
    assert wire.rewritten_manifest(path.read_bytes()) == path.read_bytes()


@pytest.mark.parametrize("path", PARTS, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_a_stored_part_is_read_and_written_as_it_was(path: Path) -> None:
    stored, written = wire.rewritten_part(path.read_bytes())
    assert written == stored


def test_there_are_stored_savepoints() -> None:
    assert len(MANIFESTS) == 7 and len(PARTS) > 20
