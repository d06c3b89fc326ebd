"""A task's snapshot as the bytes of one file, a *part* of a checkpoint.

    magic, schema version, length of the header | header | digest of all before | values | key group | key group | ...

The header names the snapshot's task and the place of each section, each with its digest, so that some key groups can be read
without the rest. The digest of the header therefore covers the whole file: it is the part's checksum. Values are msgpack with the
topology's ext types; nothing is ever unpickled. All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Protocol

import msgpack
import msgspec
from msgspec import Struct, field

from topo.digests import blake2b
from topo.errors import CheckpointDamagedError, CheckpointRefusedError, UnsupportedStateError, UnsupportedValueError
from topo.hot import pack_rows
from topo.ids import TaskId
from topo.keys import KeyGroupRange
from topo.nesting import MAX_STATE_DEPTH, check_depth
from topo.version import __version__

SCHEMA_VERSION = 1
"""Raised whenever an older topo could misread the format."""
DIGEST_BYTES = 16

_MAGIC = b"topoPART"
_START = struct.Struct("<8sHI")
_PROBE_BYTES = 64 * 1024
"""Read first of a part of which only some sections are wanted: the header of most parts is in it."""


class ExtTypes(Protocol):
    """The ext types of a topology; `wire.serializers.SerializerRegistry` is one."""

    def encode(self, value: Any) -> msgpack.ExtType:
        """Return the ext value for a value that msgpack cannot pack."""

    def decode(self, code: int, data: bytes) -> Any:
        """Return the value of an ext type."""


class TaskSnapshot(Struct, frozen=True):
    """The state of one task.

    Attributes:
        component: of the task.
        task: its id in the topology that took the snapshot.
        index: its number within the component, from 0.
        parallelism: of the component.
        key_groups: keyed state and timers, packed by `pack`, by key group; groups without any are left out.
        values: what belongs to no key, by name: of the operator, of the user's bolt, positions, staged output.
    """

    component: str
    task: TaskId
    index: int
    parallelism: int
    key_groups: dict[int, bytes] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


class EncodedPart(Struct, frozen=True):
    """A part as it is to be stored.

    Attributes:
        sections: the bytes of the file, in order.
        length: how many they are.
        checksum: of all of them, in hexadecimal.
    """

    sections: tuple[bytes, ...]
    length: int
    checksum: str

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return b"".join(self.sections)


class _Section(msgspec.Struct, frozen=True, array_like=True):
    start: int
    length: int
    digest: bytes


class _Header(msgspec.Struct, frozen=True, array_like=True):
    """Starts of sections count from the end of the header."""

    topology: str
    component: str
    task: TaskId
    index: int
    parallelism: int
    checkpoint: int
    topo: str
    values: _Section
    groups: dict[int, _Section]


def pack(value: Any, types: ExtTypes, what: str = "state") -> bytes:
    """Return state as bytes: what tuples can carry, of any size. Errors begin with `what` it is.

    Raises:
        UnsupportedStateError: a value is of a type that is not registered, or nested too deeply.
    """
    try:
        # As msgpack would, and without a second walk: other threads stand still meanwhile. It declines what may be too deep.
        if (plain := pack_rows(value)) is not None:
            return plain
        packed: bytes = msgpack.Packer(default=types.encode).pack(value)
        check_depth(packed, MAX_STATE_DEPTH)
    except UnsupportedValueError as error:
        raise UnsupportedStateError(f"{what} cannot be stored: {error}") from error
    except Exception as error:
        raise UnsupportedStateError(f"{what} cannot be stored: {type(error).__name__}: {error}") from error
    return packed


def pack_group(data: Any, types: ExtTypes) -> bytes:
    """Return the state of a key group as bytes. Raises UnsupportedStateError as `pack` does, with state and key."""
    try:
        return pack(data, types)
    except UnsupportedStateError:
        for name, state in data.get("state", {}).items() if isinstance(data, dict) else ():
            for key, _, cell in state["rows"]:
                pack(cell, types, f"state {name!r} of key {key!r:.60}")
        raise


def unpack(packed: bytes, types: ExtTypes) -> Any:
    """Return what `pack` packed; every sequence in it is a tuple. Raises ValueError for anything else."""
    try:
        return msgpack.unpackb(packed, use_list=False, strict_map_key=False, ext_hook=types.decode)
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def encode_snapshot(snapshot: TaskSnapshot, topology: str, checkpoint: int, types: ExtTypes) -> EncodedPart:
    """Return a snapshot as a part of a checkpoint. Raises UnsupportedStateError as `pack` does."""
    values = pack(snapshot.values, types)
    bodies = [values, *(snapshot.key_groups[group] for group in sorted(snapshot.key_groups))]
    sections: list[_Section] = []
    end = 0
    for body in bodies:
        sections.append(_Section(end, len(body), _digest(body)))
        end += len(body)
    header = msgspec.msgpack.encode(
        _Header(
            topology=topology,
            component=snapshot.component,
            task=snapshot.task,
            index=snapshot.index,
            parallelism=snapshot.parallelism,
            checkpoint=checkpoint,
            topo=__version__,
            values=sections[0],
            groups=dict(zip(sorted(snapshot.key_groups), sections[1:], strict=True)),
        )
    )
    head = _START.pack(_MAGIC, SCHEMA_VERSION, len(header)) + header
    digest = _digest(head)
    return EncodedPart((head, digest, *bodies), len(head) + DIGEST_BYTES + end, digest.hex())


class PartName(Struct, frozen=True):
    """The expected identity of a part. `checksum` and `length` None: not known."""

    file: str
    topology: str
    checkpoint: int
    component: str
    task: TaskId
    length: int | None = None
    checksum: str | None = None


def decode_snapshot(
    read: Callable[[int, int], bytes],
    name: PartName | str,
    types: ExtTypes,
    groups: KeyGroupRange | None = None,
    *,
    values: bool = True,
) -> TaskSnapshot:
    """Return a snapshot, or the requested share of it.

    Args:
        read: returns bytes of the file, given where they start and how many; fewer where the file ends.
        name: which part it has to be, or only the file's name.
        types: the ext types of the topology.
        groups: key groups that are wanted; None: all.
        values: whether what belongs to no key is wanted.

    Raises:
        CheckpointDamagedError: the file has changed since it was written.
        CheckpointRefusedError: a newer topo has written it, or it belongs to another topology.
    """
    file = name if isinstance(name, str) else name.file
    is_whole = groups is None and values
    begun = read(0, _PROBE_BYTES)
    header, checksum, start = _read_header(read, begun, file)
    if not isinstance(name, str):
        _compare(header, checksum, start, name)
    wanted = {group: section for group, section in header.groups.items() if groups is None or group in groups}
    sections = [*wanted.values(), *([header.values] if values else [])]
    if not sections:
        return TaskSnapshot(header.component, header.task, header.index, header.parallelism)
    first = min(section.start for section in sections)
    end = max(section.start + section.length for section in sections)
    if start + end <= len(begun):
        body = begun[start + first : start + end]
    elif is_whole:
        body = begun[start:] + read(len(begun), start + end - len(begun))
    else:
        body = read(start + first, end - first)
    found = {group: _section(body, section, first, f"key group {group}", file) for group, section in wanted.items()}
    own: dict[str, Any] = {}
    if values:
        try:
            own = unpack(_section(body, header.values, first, "the values", file), types)
        except ValueError as error:
            raise CheckpointDamagedError(file, f"its values cannot be read: {error}") from error
    return TaskSnapshot(header.component, header.task, header.index, header.parallelism, found, own)


def verify_part(read: Callable[[int, int], bytes], name: PartName) -> None:
    """Look at every byte of a part, without keeping it. Arguments and errors as of `decode_snapshot`."""
    header, checksum, start = _read_header(read, read(0, _PROBE_BYTES), name.file)
    _compare(header, checksum, start, name)
    for what, section in (("the values", header.values), *((f"key group {group}", it) for group, it in header.groups.items())):
        _section(read(start + section.start, section.length), section, section.start, what, name.file)


def _read_header(read: Callable[[int, int], bytes], begun: bytes, file: str) -> tuple[_Header, str, int]:
    """Return the header, the part's checksum, and where the sections start."""
    if len(begun) < _START.size:
        raise CheckpointDamagedError(file, f"it ends after {len(begun)} bytes")
    magic, version, length = _START.unpack_from(begun)
    if magic != _MAGIC:
        raise CheckpointDamagedError(file, "it does not begin as a part of a checkpoint does")
    if version > SCHEMA_VERSION:
        raise CheckpointRefusedError(
            f"{file} was written by a newer topo (schema {version}; this is topo {__version__}, schema {SCHEMA_VERSION})"
        )
    start = _START.size + length + DIGEST_BYTES
    if start > len(begun):
        begun = read(0, start)
    head, digest = begun[: start - DIGEST_BYTES], begun[start - DIGEST_BYTES : start]
    if len(begun) < start or _digest(head) != digest:
        raise CheckpointDamagedError(file, "the checksum of its header is wrong")
    try:
        header = msgspec.msgpack.decode(head[_START.size :], type=_Header)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CheckpointDamagedError(file, f"its header cannot be read: {error}") from error
    return header, digest.hex(), start


def _compare(header: _Header, checksum: str, start: int, name: PartName) -> None:
    if header.topology != name.topology:
        raise CheckpointRefusedError(f"{name.file} belongs to topology {header.topology!r}, not to {name.topology!r}")
    if (header.checkpoint, header.component, header.task) != (name.checkpoint, name.component, name.task):
        found = f"checkpoint {header.checkpoint} of task {header.task} ({header.component})"
        wanted = f"checkpoint {name.checkpoint} of task {name.task} ({name.component})"
        raise CheckpointDamagedError(name.file, f"it is {found} where {wanted} should be")
    length = start + sum(section.length for section in (header.values, *header.groups.values()))
    if name.length not in (None, length) or name.checksum not in (None, checksum):
        raise CheckpointDamagedError(name.file, "it is another file than the manifest names")


def _section(body: bytes, section: _Section, first: int, what: str, file: str) -> bytes:
    data = body[section.start - first : section.start - first + section.length]
    if _digest(data) != section.digest:
        raise CheckpointDamagedError(file, f"the checksum of {what} is wrong")
    return data


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
