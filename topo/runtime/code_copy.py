"""The user's code: how a topology is named, and how its code is copied.

A reference is `path/to/file.py` or `package.module`, optionally `:attribute`. Whoever submits a topology copies the file, or the
whole package that holds it, into the state folder; master and workers load that copy, so that editing the original changes
nothing that runs. Installed packages are not copied: they are loaded by name.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from topo.api.topology import Topology
from topo.errors import EnvironmentFault, NotFound, UserError
from topo.extras import EXTRAS, pip_install
from topo.runtime.state_folder import near_misses, write_atomically

DEFAULT_ATTRIBUTE = "topology"
MAX_CODE_BYTES = 64 * 1024 * 1024
"""What the copied package may have in all; more is data that was left in it."""

ORIGIN = ".origin"
"""A file beside copied code that names the folder it was copied from."""

PICKLE = ".pickle"
"""How the name of a pickled topology ends."""

_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True, slots=True)
class TopologyReference:
    """What a user wrote to name a topology.

    Attributes:
        target: a path that ends in .py (or .pickle), or a dotted module name.
        attribute: a `Topology`, or a function that returns one.
        parameters: arguments of the function; text is converted to what the function's parameter is.
    """

    target: str
    attribute: str = DEFAULT_ATTRIBUTE
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_path(self) -> bool:
        """Whether the target is a file rather than a module's name."""
        return self.target.endswith((".py", PICKLE)) or os.sep in self.target

    def __str__(self) -> str:
        return f"{self.target}:{self.attribute}"


@dataclass(frozen=True, slots=True)
class CodeCopy:
    """Code that every process of a topology loads.

    Attributes:
        reference: what to give to `load_topology`.
        hash: of the contents: equal exactly where the code is.
    """

    reference: str
    hash: str


def parse_reference(text: str, parameters: Sequence[str] = ()) -> TopologyReference:
    """Take apart `target[:attribute]` and parameters of the form `name=value`.

    Raises:
        UserError: there is no target, or a parameter is not of that form.
    """
    target, _, attribute = text.rpartition(":") if re.search(r":\w+$", text) else (text.rstrip(":"), "", "")
    if not target:
        raise UserError(f"{text!r} names no topology: write path/to/file.py or package.module, then optionally :attribute")
    values: dict[str, Any] = {}
    for parameter in parameters:
        name, is_given, value = parameter.partition("=")
        if not is_given or not name.isidentifier():
            raise UserError(f"parameter {parameter!r} is not of the form name=value")
        values[name] = value
    return TopologyReference(target, attribute or DEFAULT_ATTRIBUTE, values)


def copy_code(reference: TopologyReference, folder: Path) -> CodeCopy:
    """Copy the file, or the package that holds it, below `folder`; the same code twice is one copy.

    Raises:
        NotFound: there is no such file or module.
        UserError: the package has over MAX_CODE_BYTES.
        EnvironmentFault: the disk is full or not writable.
    """
    file = find_file(reference)
    if is_installed(file):
        return CodeCopy(f"{module_name(file)}:{reference.attribute}", hash_of_code(file))
    root = package_of(file) or file
    try:
        temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
        try:
            _copy(root, temporary)
            copied = temporary / root.name
            digest = hash_of_code(temporary / file.relative_to(root.parent))
            name = hashlib.sha256(f"{_hash_of(copied, _files_of(copied))} {root.parent}".encode()).hexdigest()[:16]
            (temporary / ORIGIN).write_text(str(root.parent))
            if not (folder / name).exists():
                temporary.rename(folder / name)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise EnvironmentFault(f"cannot copy {root} to {folder}: {error.strerror}") from error
    return CodeCopy(f"{folder / name / file.relative_to(root.parent)}:{reference.attribute}", digest)


def pickle_topology(topology: Topology, folder: Path) -> CodeCopy:
    """Write a topology that was built in a notebook or REPL to a private file below `folder`, for workers of this machine.

    Raises:
        UserError: cloudpickle is not installed, or the topology holds what cannot be pickled.
    """
    try:
        dumps: Callable[[object], bytes] = importlib.import_module("cloudpickle").dumps
    except ModuleNotFoundError as error:
        raise UserError(
            f"a topology that is not in a file goes to its workers by cloudpickle: {pip_install(EXTRAS['notebook'])}"
        ) from error
    try:
        data = dumps(topology)
    except Exception as error:
        raise UserError(
            f"the topology cannot be sent to its workers: {error}; open such things in open() or prepare()"
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    path = folder / f"{digest[:16]}{PICKLE}"
    write_atomically(path, data)
    return CodeCopy(str(path), digest)


def find_file(reference: TopologyReference) -> Path:
    """The file of the module that a reference names.

    Raises:
        NotFound: there is none; carries near misses.
    """
    if reference.is_path:
        path = Path(reference.target).expanduser().absolute()
        if path.is_file():
            if path.suffix not in (".py", PICKLE):
                raise NotFound(f"{reference.target} is not a Python file: its name has to end in .py.")
            return path
        _refuse_folder(path, reference.target)
        siblings = [entry.name for entry in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise NotFound(f"there is no file {reference.target}.", near_misses(path.name, siblings))
    _refuse_folder(Path(reference.target), reference.target, but="__init__.py")
    search = [os.getcwd(), *sys.path]
    names = reference.target.split(".")
    for depth, name in enumerate(names):
        spec = PathFinder.find_spec(".".join(names[: depth + 1]), search) if name.isidentifier() else None
        if spec is None:
            raise NotFound(f"there is no module {reference.target}.", near_misses(name, _modules_in(search)))
        search = list(spec.submodule_search_locations or [])
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise NotFound(f"module {reference.target} is not a Python file.")
    return Path(spec.origin)


def _refuse_folder(path: Path, name: str, but: str | None = None) -> None:
    """Raise NotFound, with what can be meant, for a folder that is no package."""
    if path.is_dir() and not (but and (path / but).is_file()):
        inside = sorted(str(entry.relative_to(path.parent)) for entry in path.glob("*.py"))
        raise NotFound(f"{name} is a folder; name a file in it.", tuple(inside[:3]))


def _modules_in(folders: Sequence[str]) -> list[str]:
    found = []
    for folder in folders:
        if folder and os.path.isdir(folder):
            found += [entry.removesuffix(".py") for entry in os.listdir(folder) if re.fullmatch(r"[a-zA-Z]\w*(\.py)?", entry)]
    return found


def is_installed(file: Path) -> bool:
    """Whether a file belongs to an installed package, which is loaded by name, or to topo itself."""
    places = {sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")}
    places.add(str(Path(__file__).parents[1]))
    return file.suffix == ".py" and any(file.is_relative_to(place) for place in places)


def package_of(file: Path) -> Path | None:
    """The outermost package that a file belongs to."""
    package = None
    for folder in file.parents:
        if not (folder / "__init__.py").is_file():
            break
        package = folder
    return package


def module_name(file: Path) -> str:
    """The name by which a file is imported from the folder that holds it, or its outermost package."""
    root = (package_of(file) or file).parent
    return ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _copy(root: Path, into: Path) -> None:
    """Copy a file or package."""
    size = 0
    for source in _files_of(root):
        size += source.stat().st_size
        if size > MAX_CODE_BYTES:
            raise UserError(f"{root} has over {MAX_CODE_BYTES >> 20} MiB: keep data out of the package that holds the topology")
        copy = into / source.relative_to(root.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)


def _files_of(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")]
        for name in names:
            path = Path(folder, name)
            if not name.startswith(".") and not name.endswith(".pyc") and path.is_file():
                yield path


def origin_of_copy(reference: str, folder: Path) -> tuple[str, str] | None:
    """Return the folder below `folder` that holds the referenced copy, and the one it was copied from; None for no copy."""
    target = Path(parse_reference(reference).target)
    if not target.is_relative_to(folder) or target.suffix == PICKLE:
        return None
    root = folder / target.relative_to(folder).parts[0]
    try:
        return str(root), (root / ORIGIN).read_text()
    except OSError:
        return None


def as_user_knows_it(text: str, copy: str, origin: str) -> str:
    """Return a text that names files of a copy as one that names the user's own files.

    Args:
        copy: the folder of the copy on this machine; on another one the end of its path is the same.
        origin: the folder that was copied from.
    """
    end = re.escape(os.sep + os.path.join(*Path(copy).parts[-3:]))
    return re.sub(rf"[^\s\"'(]*{end}\b", lambda _: origin, text.replace(copy, origin))


def hash_of_code(file: Path) -> str:
    """The hash of a file, or of all Python files of the package that holds it; of an installed package, the file alone."""
    root = file if is_installed(file) else package_of(file) or file
    return _hash_of(root, [source for source in _files_of(root) if source.suffix == ".py"])


def _hash_of(root: Path, files: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for name, source in sorted((source.relative_to(root.parent).as_posix(), source) for source in files):
        content = hashlib.sha256(source.read_bytes()).hexdigest()
        total.update(f"{name} {content}\n".encode())
    return total.hexdigest()
