"""The manifest of a checkpoint: which parts make it whole, and what they can be restored into.

It is written last, so a checkpoint whose manifest exists and is readable is complete. Stored as JSON with a checksum of itself.

Restored into another parallelism, keyed state moves by key group. What belongs to no key stays together as one task had it: that
of the old task i goes to the new task i modulo the new parallelism. A source splits its input by task, so its parallelism stays;
but for positions by partition: all tasks read all of them, and each keeps those of the partitions that it reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

import msgspec
from msgspec import UNSET, Struct, UnsetType

from topo.checkpoint.encoding import DIGEST_BYTES, SCHEMA_VERSION, PartName
from topo.digests import blake2b
from topo.errors import CheckpointDamagedError, CheckpointRefusedError
from topo.ids import TaskId
from topo.keys import KeyGroupRange, range_of
from topo.plan.state_kinds import BROADCAST, BY_PARTITION
from topo.version import __version__

SPOUT = "spout"
NO_STATE = "nothing"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One task's snapshot in a checkpoint.

    Attributes:
        file: its name in the folder of checkpoints.
        ended: the task had passed the end of its input: what user code made of that end is in the checkpoint, downstream.
    """

    file: str
    length: int
    checksum: str
    component: str
    task: TaskId
    index: int
    ended: bool = False


class ComponentShape(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a component that decide whether its state can be restored.

    Attributes:
        kind: "spout" or "bolt".
        parallelism: how many tasks it has.
        max_parallelism: how many key groups.
        keyed_by: the fields that its inputs are grouped by, "component.stream: field, field" each.
        state: which kind of state it has, in words; "nothing" where it has none, "" where that is not known.
        origin: the operator of a program of streams that it is, with the place where that is written; UNSET for every other.
        identity: facts by which its state is known, as the user has given it no name; UNSET where the id is enough.
        declared: the state that its class declares, of a program of streams: kind and type by name; UNSET for none.
    """

    kind: str
    parallelism: int
    max_parallelism: int
    keyed_by: tuple[str, ...] = ()
    state: str = ""
    origin: str | UnsetType = UNSET
    identity: str | UnsetType = UNSET
    declared: dict[str, str] | UnsetType = UNSET


class ComponentFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a checkpoint: its bytes, its duration, and the longest alignment and pause of a task, in ms."""

    bytes: int = 0
    duration_ms: float = 0.0
    alignment_ms: float = 0.0
    pause_ms: float = 0.0


class Manifest(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A complete checkpoint.

    Attributes:
        topology: its name.
        checkpoint: number of the checkpoint, from 1; never used twice by a topology.
        components: by id; those without state (ackers) are left out.
        parts: one for each task of the components, by task.
        created_ms: when it was completed, by the wall clock.
        is_savepoint: made on request; never deleted by topo.
        topo: the version that wrote it.
        schema: of the parts and of this.
    """

    topology: str
    checkpoint: int
    components: dict[str, ComponentShape]
    parts: tuple[Part, ...]
    figures: ComponentFigures = ComponentFigures()
    created_ms: int = 0
    is_savepoint: bool = False
    topo: str = __version__
    schema: int = SCHEMA_VERSION

    @cached_property
    def by_component(self) -> dict[str, dict[int, Part]]:
        """The parts of each component, by the index of the task that wrote them."""
        found: dict[str, dict[int, Part]] = {}
        for part in self.parts:
            found.setdefault(part.component, {})[part.index] = part
        return found


class _Stored(msgspec.Struct):
    checksum: str
    manifest: msgspec.Raw


class _Version(msgspec.Struct):
    schema: int
    topo: str


class Share(Struct, frozen=True):
    """The share of a part that one task takes. `groups` may be empty."""

    part: Part
    groups: KeyGroupRange
    takes_values: bool


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest's file."""
    body = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Stored(_checksum(body), msgspec.Raw(body)))


def decode_manifest(data: bytes, file: str) -> Manifest:
    """Return the manifest in a file.

    Raises:
        CheckpointDamagedError: the file has changed since it was written.
        CheckpointRefusedError: a newer topo has written it.
    """
    try:
        stored = msgspec.json.decode(data, type=_Stored)
        body = bytes(stored.manifest)
        if _checksum(body) != stored.checksum:
            raise CheckpointDamagedError(file, "its checksum is wrong")
        version = msgspec.json.decode(body, type=_Version)
        if version.schema > SCHEMA_VERSION:
            raise CheckpointRefusedError(
                f"{file} was written by topo {version.topo} (schema {version.schema}), which is newer than this one: "
                f"topo {__version__} (schema {SCHEMA_VERSION}); update topo"
            )
        return msgspec.json.decode(body, type=Manifest)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CheckpointDamagedError(file, str(error)) from error


def misfits(manifest: Manifest, topology: str, components: Mapping[str, ComponentShape]) -> list[str]:
    """Return why a checkpoint cannot be restored into a topology, a sentence with its fix each; empty when it can.

    Args:
        manifest: the checkpoint.
        topology: the topology's name.
        components: those it has now.
    """
    if manifest.topology != topology:
        return [
            f"checkpoint {manifest.checkpoint} is of topology {manifest.topology!r}, not of {topology!r}; "
            f"submit it under the name {manifest.topology!r}"
        ]
    found: list[str] = []
    for name, old in manifest.components.items():
        new = components.get(name)
        if new is None:
            source = _source_of(name, manifest.components)
            above = manifest.components.get(source)
            if above is not None and source in components and (old.state, old.origin) == (NO_STATE, above.origin) and old.origin:
                # Operators of streams that run in the tasks of their source now.
                continue
            stored = f" ({old.origin})" if old.origin else ""
            found.append(
                f"no task takes the state of {name!r}{stored}, which the topology no longer has; keep it, or give its state up "
                f"(--drop-state {name})"
            )
            continue
        if _is_another(old, new, components.values()):
            found.append(
                f"the state of {name!r} is that of {old.origin}, which had no name, and {new.origin} is another operator; to let "
                f"it take the state over, give it name={name!r}, else begin with nothing (--drop-state {name})"
            )
            continue
        begun = len(found)
        if new.kind != old.kind:
            found.append(f"{name!r} was a {old.kind} and is a {new.kind}; give it another name")
        elif new.state != old.state and old.state not in ("", NO_STATE) and new.state:
            found.append(
                f"{name!r} has {old.state} in the checkpoint, and {new.state} now, which does not take it over; leave it as it "
                f"was, or let it begin with nothing (--drop-state {name})"
            )
        for state, was in (old.declared or {}).items():
            if (is_now := (new.declared or {}).get(state, was)) != was:
                found.append(
                    f"the state {state!r} of {name!r} is a {was} in the checkpoint, and a {is_now} now; give the new one another "
                    f"name, or let {name!r} begin with nothing (--drop-state {name})"
                )
        if old.kind == new.kind == SPOUT and new.parallelism != old.parallelism and old.state != BY_PARTITION:
            found.append(
                f"{name!r} had {old.parallelism} tasks and has {new.parallelism}: what each has read cannot be split; "
                "leave it as it was"
            )
        if new.max_parallelism != old.max_parallelism:
            found.append(
                f"{name!r} had max_parallelism={old.max_parallelism} and has {new.max_parallelism}: its keys would move; "
                f"set max_parallelism={old.max_parallelism} for it"
            )
        if _keys(new, components) != _keys(old, manifest.components):
            was, is_ = ("; ".join(shape.keyed_by) or "nothing" for shape in (old, new))
            found.append(f"the state of {name!r} goes by {was}, and its inputs are grouped by {is_}; group them as before")
        if old.origin and new.origin:
            places = f" ({old.origin} in the checkpoint, {new.origin} now)"
            found[begun:] = [f"{problem}{places}" for problem in found[begun:]]
    return found


def _source_of(component: str, shapes: Mapping[str, ComponentShape]) -> str:
    """Return the spout that operators of streams are behind, which run in its tasks or are a component; else the component."""
    source = component.removesuffix("-steps")
    return source if source in shapes and shapes[source].kind == SPOUT else component


def _keys(shape: ComponentShape, shapes: Mapping[str, ComponentShape]) -> list[str]:
    """Return the fields that the state of a component goes by; in which tasks operators behind a source run does not matter."""
    parts = (keyed_by.partition(".") for keyed_by in shape.keyed_by)
    return sorted(f"{_source_of(component, shapes)}{dot}{rest}" for component, dot, rest in parts)


def _is_another(old: ComponentShape, new: ComponentShape, all_new: Iterable[ComponentShape]) -> bool:
    """Whether the state of an operator without a name would go to another one, which has its id now."""
    if not old.identity or old.identity == new.identity:
        return False
    # An operator that has been given the name takes the state over, unless the old one is still there under another id.
    return bool(new.identity) or any(one.identity == old.identity for one in all_new)


def without(manifest: Manifest, components: Iterable[str]) -> Manifest:
    """Return the manifest of a checkpoint without the state of some components: no task takes it, or they begin with nothing."""
    dropped = set(components)
    return msgspec.structs.replace(
        manifest,
        components={name: shape for name, shape in manifest.components.items() if name not in dropped},
        parts=tuple(part for part in manifest.parts if part.component not in dropped),
    )


def shares_for(manifest: Manifest, component: str, index: int, parallelism: int) -> list[Share]:
    """Return the shares of the task `index` of `parallelism`, by writing task; empty for a component without state."""
    shape = manifest.components.get(component)
    if shape is None:
        return []
    own = range_of(index, shape.max_parallelism, parallelism)
    found = []
    for part in _candidates(manifest, component, index, parallelism):
        theirs = range_of(part.index, shape.max_parallelism, shape.parallelism)
        groups = KeyGroupRange(max(own.start, theirs.start), min(own.end, theirs.end))
        takes_values = part.index % parallelism == index or (shape.state == BY_PARTITION and shape.parallelism != parallelism)
        if shape.state == BROADCAST:
            # The one copy is in the first group of the first task.
            groups = KeyGroupRange(0, 0 if part.index == 0 else -1)
        if takes_values or groups.groups:
            found.append(Share(part, groups, takes_values))
    return found


def _candidates(manifest: Manifest, component: str, index: int, parallelism: int) -> Collection[Part]:
    """Return the parts that may matter to a task: its own where the parallelism is the same, else all of the component.

    Of broadcast state the first part matters to all.
    """
    parts, shape = manifest.by_component.get(component, {}), manifest.components.get(component)
    is_same = shape is not None and shape.parallelism == parallelism and index in parts and shape.state != BROADCAST
    return [parts[index]] if is_same else parts.values()


def has_ended(manifest: Manifest, component: str, index: int, parallelism: int) -> bool:
    """Whether the task `index` of `parallelism` continues behind the end of its input.

    A barrier is behind the END of a sender on all its edges or on none, so all tasks of a bolt agree. A task that takes over from
    none, after a change of parallelism, goes by that. Tasks of a spout end one by one, and their number stays, but for those with
    positions by partition: these have ended when all had.
    """
    parts = _candidates(manifest, component, index, parallelism)
    shape = manifest.components.get(component)
    if shape is not None and shape.state == BY_PARTITION and shape.parallelism != parallelism:
        return bool(parts) and all(part.ended for part in parts)
    own = [part for part in parts if part.index % parallelism == index]
    return bool(parts) and all(part.ended for part in own or parts)


def reopened(manifest: Manifest) -> Manifest:
    """Return the last checkpoint of a run that came to the end of its input, for a run that reads on from there.

    Where only some inputs have ended the manifest stays as it is: the results of their end must not be emitted twice.
    """
    if not all(part.ended for part in manifest.parts):
        return manifest
    return msgspec.structs.replace(manifest, parts=tuple(msgspec.structs.replace(part, ended=False) for part in manifest.parts))


def name_of(part: Part, manifest: Manifest) -> PartName:
    """Return the expected identity of a part's file."""
    return PartName(part.file, manifest.topology, manifest.checkpoint, part.component, part.task, part.length, part.checksum)


def _checksum(data: bytes) -> str:
    return blake2b(data, digest_size=DIGEST_BYTES).hexdigest()
