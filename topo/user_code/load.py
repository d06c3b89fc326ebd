"""Loading a topology from the user's code, or from the copy of it.

Tracebacks name the user's original instead of the copy.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pickle
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from topo.api.topology import Topology, TopologySource
from topo.builder import TopologyBuilder
from topo.digests import sha256
from topo.errors import ConfigError, NotFoundError, TopoError, UserError
from topo.storage.state_folder import near_misses
from topo.user_code.copy import PICKLE, TopologyReference, find_file, not_copied, parse_reference
from topo.user_code.files import ORIGIN, code_of, hash_of_code, is_installed, module_name, package_of, root_of, top_level_names
from topo.user_errors import kind_and_message
from topo.wire.serializers import SerializerRegistry

_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_COLLECTION = re.compile(
    r"(None \| |(\w+\.)?Optional\[)?(\w+\.)*(list|tuple|set|frozenset|dict|sequence|iterable|collection|mapping)(\[.*\])?\]?"
    r"( \| None)?",
    re.IGNORECASE,
)

_roots: list[str] = []
"""Folders of lone files that this process has searched for what they import, in `sys.path` behind everything else."""


class LoadedTopology(NamedTuple):
    """A topology and the code that built it.

    Attributes:
        topology: as it was built.
        code_hash: of the code; that of its copy, as `copy_code` gave it, unless a file has changed since.
        imported: files of the modules that were imported for it.
    """

    topology: Topology
    code_hash: str
    imported: frozenset[Path] = frozenset()


class CodeError(UserError):
    """The user's code raised while it was imported or while it built the topology.

    Attributes:
        file: where, as the user knows it.
        line: of that file; 0 when unknown.
        traceback: from the user's first line on.
    """

    def __init__(self, message: str, file: str = "", line: int = 0, traceback: str = "") -> None:
        super().__init__(message)
        self.file = file
        self.line = line
        self.traceback = traceback

    def __reduce__(self) -> tuple[type[CodeError], tuple[str, str, int, str]]:
        return CodeError, (str(self), self.file, self.line, self.traceback)


def load_topology(reference: str, parameters: Mapping[str, Any] | None = None) -> LoadedTopology:
    """Import what a reference names and build the topology; called again, it builds another one.

    Args:
        reference: of a copy, or as a user writes it.
        parameters: arguments of the function; see `TopologyReference`.

    Raises:
        NotFoundError: no such file, module, attribute or parameter.
        UserError: a parameter is missing or cannot be converted, or the attribute is not a topology.
        CodeError: the user's code raised.
        TopologyError: the topology has mistakes.
    """
    parsed = parse_reference(reference)
    given = dict(parameters or {})
    if parsed.target.endswith(PICKLE):
        data = _read_private(Path(parsed.target))
        return LoadedTopology(checked(_unpickle(data, parsed.target), f"{reference} gave"), sha256(data).hexdigest())
    file = find_file(parsed)
    known = set(sys.modules)
    with _blaming_user(file, "importing"), _no_arguments(file):
        module, is_fresh = _import(parsed, file)
    value = _attribute(module, parsed, file)
    loader = None if module.__spec__ is None else module.__spec__.loader
    if isinstance(value, Topology | TopologySource) and not is_fresh and loader is not None:
        with _blaming_user(file, "importing"), _no_arguments(file):
            loader.exec_module(module)
        value = _attribute(module, parsed, file)
    gave, hint = f"{reference} gave", ""
    if callable(value):
        if isinstance(value, FunctionType):
            function = f"{parsed.attribute}() at {_within(file)}:{value.__code__.co_firstlineno}"
            if inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value):
                raise UserError(f"{function} is `async def`, and topo calls it without an event loop: write `def`")
            gave, hint = f"{function} gave", "end it with `return flow` (the StreamBuilder), or `return builder.build()`"
        arguments = bind_parameters(value, given, f"{parsed.attribute}() of {_within(file)}")
        with _blaming_user(file, "building the topology of"), _no_arguments(file):
            value = value(**arguments)
    elif given:
        raise UserError(
            f"{parsed.attribute} of {_within(file)} is no function and takes no parameters, but got {', '.join(given)}"
        )
    if isinstance(value, TopologySource):
        with _blaming_user(file, "building the topology of"):
            value = value.build_for_workers()
    return LoadedTopology(checked(value, gave, hint), hash_of_code(file), _imported_since(known))


@contextmanager
def _no_arguments(file: Path) -> Iterator[None]:
    """Hide the arguments of this process, which belong to a command of topo, or to a script: no worker has those."""
    given, sys.argv = sys.argv, [str(file)]
    try:
        yield
    finally:
        sys.argv = given


def search_py_files(py_files: Iterable[str]) -> None:
    """Let this process import what `--py-files` names, behind everything else."""
    for name in py_files:
        path = Path(name)
        _search_last(str(path.parent if path.suffix == ".py" else path))


def serializers_of(topology: Topology) -> SerializerRegistry:
    """Return how the values of a topology are written down."""
    registry = SerializerRegistry()
    for carried in topology.carried_types:
        registry.register(carried.cls, carried.code, carried.encode, carried.decode)
    return registry


def bind_parameters(function: Callable[..., Any], given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Convert text to the types of the function's parameters, by annotation, else by default, else by its looks.

    Raises:
        NotFoundError: the function has no such parameter; carries near misses.
        UserError: one is missing, is not of its type, or is a collection, which no text is.
    """
    taken = inspect.signature(function).parameters
    keywords = {key: one for key, one in taken.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    takes_any = any(one.kind is one.VAR_KEYWORD for one in taken.values())
    for key in given:
        if key not in keywords and not takes_any:
            known = f"it takes {', '.join(keywords)}" if keywords else "it takes none"
            raise NotFoundError(f"{name} has no parameter {key!r}: {known}.", near_misses(key, keywords))
    missing = [key for key, one in keywords.items() if one.default is one.empty and key not in given]
    if missing:
        raise UserError(f"{name} needs {', '.join(missing)}: add {' '.join(f'-p {key}=...' for key in missing)}")
    return {key: _convert(value, keywords.get(key), key) if isinstance(value, str) else value for key, value in given.items()}


def _convert(text: str, parameter: inspect.Parameter | None, name: str) -> Any:
    kind = _type_of(parameter) if parameter is not None else None
    try:
        if kind is bool:
            if text.lower() not in _TRUE | _FALSE:
                raise ValueError
            return text.lower() in _TRUE
        if kind is not None:
            return kind(text)
    except ValueError as error:
        raise UserError(f"parameter {name} is {kind.__name__ if kind else 'text'}, not {text!r}") from error
    for guess in (int, float):
        try:
            return guess(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


def _type_of(parameter: inspect.Parameter) -> Callable[[str], Any] | None:
    known: dict[str, Any] = {"int": int, "float": float, "bool": bool, "str": str, "Path": Path}
    annotation, default = parameter.annotation, type(parameter.default)
    is_declared = annotation is not parameter.empty
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation if is_declared else default)
    if _COLLECTION.fullmatch(written):
        what = f"parameter {parameter.name} is {written}, and -p gives one value"
        raise UserError(f"{what}; declare it as a str, and have the function split that")
    if is_declared:
        named = [known[word] for word in re.findall(r"\w+", written) if word in known]
        return named[0] if len(named) == 1 else None
    return default if default in known.values() else None


def _import(reference: TopologyReference, file: Path) -> tuple[ModuleType, bool]:
    """Import the module, under a unique name; return whether it was not imported before."""
    if not reference.is_path or is_installed(file):
        # A module that is named, not pointed at, is imported as `python -m` would.
        _search_in(os.getcwd())
        name = module_name(file) if reference.is_path else reference.target
        if not is_installed(file):
            _forget_others(file)
        is_fresh = name not in sys.modules
        return importlib.import_module(name), is_fresh
    package = package_of(file)
    name = module_name(file) if package is not None else _name_for(file)
    _forget_others(file)
    if package is not None:
        _search_in(str(package.parent))
    else:
        _search_last(str(file.parent))
    if name in sys.modules:
        return sys.modules[name], False
    if package is not None:
        return importlib.import_module(name), True
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module, True


def _within(file: Path) -> Path:
    """Return the path of a file as the names of its packages: an `__init__.py` alone could be that of any."""
    return file.relative_to(root_of(file))


def _name_for(file: Path) -> str:
    """A lone file is imported under its own name, unless that belongs to another module."""
    name = re.sub(r"\W", "_", file.stem)
    other = sys.modules.get(name)
    is_free = name not in sys.stdlib_module_names and importlib.util.find_spec(name) is None if other is None else False
    if is_free or getattr(other, "__file__", None) == str(file):
        return name
    return f"{name}_{sha256(str(file).encode()).hexdigest()[:8]}"


def _forget_others(file: Path) -> None:
    """Forget modules that have the names of this topology's and come from another folder: they would be taken for them.

    The file itself needs no such care: `_name_for` gives it another name.
    """
    root = root_of(file)
    own = {file.stem} if package_of(file) is None else set()
    for top in top_level_names(code_of(file), root) - own - sys.stdlib_module_names:
        present = sys.modules.get(top)
        places = [getattr(present, "__file__", None), *getattr(present, "__path__", [])]
        paths = [Path(place) for place in places if place]
        if paths and not any(path.is_relative_to(root) or is_installed(path) for path in paths):
            for name in [name for name in sys.modules if name.split(".")[0] == top]:
                del sys.modules[name]


def _imported_since(known: set[str]) -> frozenset[Path]:
    files = (getattr(module, "__file__", None) for name, module in list(sys.modules.items()) if name not in known)
    return frozenset(Path(file) for file in files if file)


def _search_in(folder: str) -> None:
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)


def _search_last(folder: str) -> None:
    """Search a folder behind all others, but for those of topologies that were loaded before."""
    if folder in sys.path and folder not in _roots:
        return
    _roots[:] = [folder, *(root for root in _roots if root != folder)]
    sys.path[:] = [*(entry for entry in sys.path if entry not in _roots), *_roots]


def _origin_of(root: Path) -> str:
    """The folder that a copy was made from, where modules beside a lone file still are."""
    try:
        return (root / ORIGIN).read_text()
    except OSError:
        return str(root)


def _attribute(module: ModuleType, reference: TopologyReference, file: Path) -> Any:
    try:
        return getattr(module, reference.attribute)
    except AttributeError:
        meant = [
            name
            for name, value in vars(module).items()
            if isinstance(value, Topology | TopologySource) or (inspect.isfunction(value) and value.__module__ == module.__name__)
        ]
        near = near_misses(reference.attribute, meant) or tuple(meant[:3])
        name = reference.attribute
        # Modules are found in many folders, so it may be another than the user means.
        where, given = (file.name, file.name) if reference.is_path else (str(file), reference.target)
        fix = "" if near else f"; define {name}() to return builder.build(), or give another name: {given}:NAME"
        raise NotFoundError(f"{where} has no {name!r}{fix}.", near) from None


def checked(value: object, gave: str, hint: str = "") -> Topology:
    """Return a value that has to be a topology.

    Args:
        gave: the beginning of the error: where the value is from.
        hint: the fix.

    Raises:
        UserError: it is none; names the fix.
    """
    if isinstance(value, Topology):
        return value
    hint = (
        "call its build()" if isinstance(value, TopologyBuilder) else hint or "make it a Topology, or a function that returns one"
    )
    raise UserError(f"{gave} a {type(value).__name__}, not a Topology: {hint}")


def _read_private(path: Path) -> bytes:
    """Read what `pickle_topology` wrote, and nothing that anyone else could have put there."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or status.st_mode & 0o077:
                raise UserError(f"{path} is not private to you and is not loaded: it could run anything")
            return file.read()
    except OSError as error:
        raise NotFoundError(f"cannot read {path}: {error.strerror}.") from error


def _unpickle(data: bytes, path: str) -> object:
    try:
        return pickle.loads(data)
    except (pickle.UnpicklingError, EOFError, ImportError, AttributeError) as error:
        raise UserError(f"cannot load the topology from {path}: {error}") from error


class _blaming_user:
    """Turns what user code raises into a CodeError that points at the user's own line; what topo refused there gets this line."""

    def __init__(self, file: Path, doing: str) -> None:
        self._root = root_of(file)
        self._file = file
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, (Exception, SystemExit)):
            return
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(self._root)]
        if isinstance(error, TopoError):
            name = Path(frames[-1].filename).name if frames else ""
            # Errors of other classes carry more than a text, and those of operators and components name their place.
            if name and type(error) in (UserError, ConfigError) and f"{name}:" not in str(error):
                error.args = (f"{error} ({name}:{frames[-1].lineno})",)
            return
        copied, line = str(self._file), 0
        if isinstance(error, SyntaxError) and error.filename:
            copied, line = error.filename, error.lineno or 0
        elif frames:
            copied, line = frames[-1].filename, frames[-1].lineno or 0
        trace = "".join(traceback.format_list(frames) + traceback.format_exception_only(error))
        origin = _origin_of(self._root)
        file = copied.replace(str(self._root), origin)
        what = f"SyntaxError: {error.msg}" if isinstance(error, SyntaxError) else kind_and_message(error)
        what = what.replace(str(self._root), origin)
        message = f"{self._doing} {_within(self._file)} failed: {what} ({file}, line {line}){self._hint(error, origin)}"
        raise CodeError(message, file, line, trace.replace(str(self._root), origin)) from error

    def _hint(self, error: BaseException, origin: str) -> str:
        """Say how a module is shipped that lies beside the original code, or why a file there is not found."""
        if isinstance(error, FileNotFoundError):
            return not_copied(str(error), str(error).replace(str(self._root), origin))
        if not isinstance(error, ModuleNotFoundError) or not error.name or str(self._root) == origin:
            return ""
        module = Path(origin, *error.name.split("."))
        if not (module.is_dir() or module.with_suffix(".py").is_file()):
            return ""
        return (
            f"; {module.name} lies in {module.parent} and was not copied: import it with an import statement, or give --py-files"
        )
