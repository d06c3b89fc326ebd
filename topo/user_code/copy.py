"""The user's code: how a topology is named, and how its code is copied.

A reference is `path/to/file.py` or `package.module`, optionally `:attribute`. A submit copies the file, or the whole package that
holds it, and what that imports from the same folder, into the state folder. Master and workers load the copy alone, so editing
or removing the original changes nothing that runs. Installed packages are not copied: they are loaded by name.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import PathFinder
from io import BytesIO
from pathlib import Path
from types import CodeType
from typing import Any

from msgspec import Meta, Struct, field

from topo.api.topology import Topology
from topo.digests import sha256
from topo.errors import NotFoundError, TopoEnvironmentError, UserError
from topo.extras import EXTRAS, pip_install
from topo.storage.state_folder import near_misses, write_atomically
from topo.user_code.files import ORIGIN, code_of, files_of, hash_of, hash_of_code, is_installed, module_name, root_of
from topo.user_code.struct_classes import NAMED, reduce_meta, reduce_named, reduced, resolved
from topo.user_errors import shown_file

DEFAULT_ATTRIBUTE = "topology"
MAX_CODE_BYTES = 64 * 1024 * 1024
"""Limit of the copied package's size; a larger one has data files left in it."""

_MODULES = (".py", ".zip", ".egg", ".whl")
_COMPILED = (".so", ".pyd", ".dylib")
_NO_PYTHON = "{} is not a Python file: its name has to end in .py."

_LEARNT = "__msgspec_cache__"
"""Attribute of a class in which msgspec keeps how to read it."""

PICKLE = ".pickle"
"""Suffix of a pickled topology's file."""


class TopologyReference(Struct, frozen=True):
    """A user's reference to a topology.

    Attributes:
        target: a path that ends in .py (or .pickle), or a dotted module name.
        attribute: a `Topology`, or a function that returns one.
        parameters: arguments of the function; text is converted to the type of the function's parameter.
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


class CodeCopy(Struct, frozen=True):
    """Code that every process of a topology loads.

    Attributes:
        reference: what to give to `load_topology`.
        hash: of the contents: equal exactly where the code is.
        files: the copied files, by path below the folder that it was copied from; empty for installed code.
    """

    reference: str
    hash: str
    files: tuple[str, ...] = ()


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


def copy_code(reference: TopologyReference, folder: Path, imported: Iterable[Path] = ()) -> CodeCopy:
    """Copy a topology's code below `folder`: see `code_of`. The same code twice is one copy.

    Args:
        reference: names the topology.
        folder: holds a folder for each copy.
        imported: files that the code was seen to import.

    Raises:
        NotFoundError: there is no such file or module.
        UserError: the code has over MAX_CODE_BYTES.
        TopoEnvironmentError: the disk is full or not writable.
    """
    file = find_file(reference)
    if is_installed(file):
        return CodeCopy(f"{module_name(file)}:{reference.attribute}", hash_of_code(file))
    root = root_of(file)
    files = code_of(file, imported)
    try:
        copy = _copy(files, root, folder)
        digest = hash_of_code(copy / file.relative_to(root))
    except OSError as error:
        raise TopoEnvironmentError(f"cannot copy {root} to {folder}: {error.strerror}") from error
    names = tuple(path.relative_to(root).as_posix() for path in files)
    return CodeCopy(f"{copy / file.relative_to(root)}:{reference.attribute}", digest, names)


def copy_py_files(paths: Sequence[str], folder: Path) -> list[str]:
    """Copy modules and archives that a topology imports from below `folder`; return the copies.

    Raises:
        UserError: one cannot be imported from, or two have the same name.
        TopoEnvironmentError: the disk is full or not writable.
    """
    files = [Path(path).absolute() for path in paths]
    for path in files:
        check_importable(path)
    if len({path.name for path in files}) < len(files):
        raise UserError(f"two of --py-files have the same name: {', '.join(sorted(path.name for path in files))}")
    if not files:
        return []
    contents = " ".join(f"{path.name} {sha256(path.read_bytes()).hexdigest()}" for path in files)
    copy = folder / f"py-files-{sha256(contents.encode()).hexdigest()[:16]}"
    try:
        copy.mkdir(mode=0o700, exist_ok=True)
        for path in files:
            write_atomically(copy / path.name, path.read_bytes())
    except OSError as error:
        raise TopoEnvironmentError(f"cannot copy --py-files to {folder}: {error.strerror}") from error
    return [str(copy / path.name) for path in files]


def check_importable(path: Path) -> None:
    """Raise UserError unless a file of `--py-files` exists and a process can import from it."""
    if not path.is_file():
        raise UserError(f"--py-files: there is no file {path}")
    if path.suffix not in _MODULES:
        raise UserError(f"--py-files: {path} cannot be imported from; give files that end in {', '.join(_MODULES)}")
    if path.suffix == ".py":
        return
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            compiled = [name for name in archive.namelist() if name.endswith(_COMPILED)]
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"--py-files: {path} cannot be imported from: {error}") from error
    if compiled:
        raise UserError(
            f"--py-files: {path} holds compiled modules ({compiled[0]}), which cannot be imported from an archive: install it on "
            "each host, or ship a packed environment to a Spark cluster with --conf spark.archives=environment.tar.gz#environment"
        )


def pickle_topology(topology: Topology, folder: Path, held: Iterable[tuple[str, object]] = ()) -> CodeCopy:
    """Write a topology that was built in a notebook or REPL to a private file below `folder`, for workers of this machine.

    Args:
        folder: holds such files.
        held: its values, each with the words for it; the error names those that cannot be pickled.

    Raises:
        UserError: cloudpickle is not installed, or the topology holds what cannot be pickled.
    """
    try:
        pickler = importlib.import_module("cloudpickle").Pickler
    except ModuleNotFoundError as error:
        raise UserError(
            "a topology that an import of its file does not make (in a notebook, or below `if __name__ == '__main__':`) goes to "
            f"its workers by cloudpickle: {pip_install(EXTRAS['notebook'])}; or make it in a function of a file"
        ) from error
    try:
        data = _dumps(pickler, topology)
    except Exception as error:
        wrong = "; ".join(words for words, value in held if not _can(pickler, value)) or str(error)
        raise UserError(
            f"the topology cannot be sent to its workers: {wrong}; open such things in open() or prepare(), or put the code into "
            "a file"
        ) from error
    digest = sha256(data).hexdigest()
    path = folder / f"{digest[:16]}{PICKLE}"
    write_atomically(path, data)
    return CodeCopy(str(path), digest)


def pickled(value: object) -> bytes:
    """Pickle a value as topologies of notebooks are pickled. What cloudpickle raises is its own."""
    return _dumps(importlib.import_module("cloudpickle").Pickler, value)


def _dumps(pickler: Any, value: object) -> bytes:
    """Pickle a value; code keeps its file, or cell of a notebook, for which cloudpickle puts "<dynamic-code>" since 3.1.3."""

    def reduce_code(code: CodeType) -> tuple[Any, ...]:
        make, arguments = pickler.dispatch_table[CodeType](code)
        names = code.co_filename, "<dynamic-code>"
        return make, tuple(shown_file(code.co_filename) if one in names else one for one in arguments)

    def reducer_override(self: Any, value: object) -> Any:
        # What msgspec has learnt of a class cannot be pickled, and is learnt again where it is missing.
        if isinstance(value, type) and _LEARNT in vars(value):
            delattr(value, _LEARNT)
        found = pickler.reducer_override(self, value)
        if not isinstance(value, type) or found is NotImplemented:
            return found
        if issubclass(value, Struct):
            return reduced(value)
        if len(found) > 2 and "__annotations__" in (attributes := found[2][0]):
            attributes["__annotations__"] = resolved(value)
        return found

    reducers = {CodeType: reduce_code, Meta: reduce_meta, **dict.fromkeys(NAMED, reduce_named)}
    data, table = BytesIO(), ChainMap(reducers, pickler.dispatch_table)
    # A pickler in C takes the table of its class.
    type("Pickler", (pickler,), {"dispatch_table": table, "reducer_override": reducer_override})(data).dump(value)
    return data.getvalue()


def _can(pickler: Any, value: object) -> bool:
    try:
        _dumps(pickler, value)
    except Exception:
        return False
    return True


def find_file(reference: TopologyReference) -> Path:
    """The file of the module that a reference names.

    Raises:
        NotFoundError: there is none; carries near misses.
    """
    if reference.is_path:
        path = Path(os.path.expanduser(reference.target)).absolute()
        if path.is_file():
            if path.suffix not in (".py", PICKLE):
                raise NotFoundError(_NO_PYTHON.format(reference.target))
            # The packages that a file belongs to are found by the folders of its path.
            return path.parent.resolve() / path.name if ".." in path.parts else path
        _refuse_folder(path, reference.target)
        siblings = [entry.name for entry in path.parent.glob("*.py")] if path.parent.is_dir() else []
        near = [os.path.join(os.path.dirname(reference.target), name) for name in near_misses(path.name, siblings)]
        raise NotFoundError(f"there is no file {reference.target}.", tuple(near))
    _refuse_folder(Path(reference.target), reference.target, but="__init__.py")
    search = [os.getcwd(), *sys.path]
    names = reference.target.split(".")
    for depth, name in enumerate(names):
        spec = PathFinder.find_spec(".".join(names[: depth + 1]), search) if name.isidentifier() else None
        if spec is None and Path(reference.target).is_file():
            raise NotFoundError(_NO_PYTHON.format(reference.target))
        if spec is None:
            known = [module for module in _modules_in(search) if module not in sys.stdlib_module_names]
            suggested = (*_below_folders(names), *near_misses(name, known))
            raise NotFoundError(f"there is no module {reference.target}.", suggested)
        search = list(spec.submodule_search_locations or [])
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise NotFoundError(f"module {reference.target} is not a Python file.")
    return Path(spec.origin)


def _below_folders(names: Sequence[str]) -> list[str]:
    """The files of a module that is importable from a folder in the current one, such as `src`, and not from here."""
    if not all(name.isidentifier() for name in names):
        return []
    return sorted(str(file) for file in Path().glob(f"*/{'/'.join(names)}.py"))


def _refuse_folder(path: Path, name: str, but: str | None = None) -> None:
    """Raise NotFoundError, with what can be meant, for a folder that is no package."""
    if path.is_dir() and not (but and (path / but).is_file()):
        inside = sorted(str(entry.relative_to(path.parent)) for entry in path.glob("*.py"))
        raise NotFoundError(f"{name} is a folder; name a file in it.", tuple(inside[:3]))


def _modules_in(folders: Sequence[str]) -> list[str]:
    found = []
    for folder in folders:
        if folder and os.path.isdir(folder):
            found += [entry.removesuffix(".py") for entry in os.listdir(folder) if re.fullmatch(r"[a-zA-Z]\w*(\.py)?", entry)]
    return found


def _copy(files: Sequence[Path], root: Path, folder: Path) -> Path:
    """Copy files below `root` to a folder named by their contents, unless it exists; return that folder."""
    if (size := sum(path.stat().st_size for path in files)) > MAX_CODE_BYTES:
        largest = max(files, key=lambda path: path.stat().st_size)
        raise UserError(
            f"the code in {root} has {size >> 20} MiB, over {MAX_CODE_BYTES >> 20} MiB (the largest file is "
            f"{largest.relative_to(root)}): keep data out of the package that holds the topology"
        )
    # Only a submission makes copies; workers load them.
    import tempfile

    temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
    try:
        for source in files:
            target = temporary / source.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        (temporary / ORIGIN).write_text(str(root))
        # Of the copies, since the originals may be edited meanwhile.
        digest = hash_of(files_of(temporary), temporary)
        copy = folder / sha256(f"{digest} {root}".encode()).hexdigest()[:16]
        if not copy.exists():
            temporary.rename(copy)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return copy


def origin_of_copy(reference: str) -> tuple[str, str] | None:
    """Return the folder that holds the referenced copy, and the one it was copied from; None for no copy, and for a pickle."""
    target = Path(parse_reference(reference).target)
    if target.suffix == ".py":
        for root in target.parents:
            with suppress(OSError):
                return str(root), (root / ORIGIN).read_text()
    return None


def as_user_knows_it(text: str, copy: str, origin: str) -> str:
    """Return a text with the names of copied files replaced by those of the user's own files.

    Args:
        copy: the folder of the copy on this machine; on another one the end of its path is the same.
        origin: the folder that was copied from.
    """
    end = re.escape(os.sep + os.path.join(*Path(copy).parts[-3:]))
    *before, rest = re.split(rf"{end}\b", text.replace(copy, origin))
    known: list[str] = []
    # One expression for the whole path would take quadratic time on a long word, such as data in a message.
    for part in before:
        words = part.removesuffix(re.split(r"[\s\"'(]", part)[-1])
        if words or not known:
            known.append(words + origin)
    return "".join(known) + rest


def not_copied(raised: str, shown: str) -> str:
    """Return why a file beside the original code was not found; "" for all other files.

    Args:
        raised: the text of a FileNotFoundError.
        shown: the same, with the names of the user's own files.
    """
    named = re.search(r"'([^']+)'$", shown)
    if raised == shown or named is None or not os.path.exists(named[1]):
        return ""
    return (
        "; it exists, but code runs as a copy, and data files beside a single-file topology are not copied: "
        "give the absolute path, as a parameter for instance, or put code and data in a package"
    )
