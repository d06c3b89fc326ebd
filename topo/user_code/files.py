"""Finds the files of a topology's code: its file or package, and the modules that these import from the folder it lies in.

Imports are read from the sources, functions included, so that a module which is imported late is found as well. Installed
packages and the standard library are no part of it: they are loaded by name.
"""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path

from topo.digests import sha256

ORIGIN = ".origin"
"""A file beside copied code that names the folder it was copied from."""

_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules"})
_MODULES = (".py", ".so", ".pyd")


def is_installed(file: Path) -> bool:
    """Whether a file belongs to an installed package, which is loaded by name, or to topo itself."""
    places = {sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")}
    places.add(str(Path(__file__).parents[1]))
    return file.suffix in _MODULES and any(file.is_relative_to(place) for place in places)


def package_of(file: Path) -> Path | None:
    """The outermost package that a file belongs to."""
    package = None
    for folder in file.parents:
        if not (folder / "__init__.py").is_file():
            break
        package = folder
    return package


def root_of(file: Path) -> Path:
    """The folder that a module, or its outermost package, is imported from."""
    return (package_of(file) or file).parent


def module_name(file: Path) -> str:
    """The name by which a file is imported from the folder that holds it, or its outermost package."""
    return ".".join(file.relative_to(root_of(file)).with_suffix("").parts).removesuffix(".__init__")


def files_of(path: Path) -> Iterator[Path]:
    """Yield a file, or the files of a folder and its subfolders; neither hidden nor compiled ones."""
    if path.is_file():
        yield path
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")]
        for name in names:
            found = Path(folder, name)
            if not name.startswith(".") and not name.endswith(".pyc") and found.is_file():
                yield found


def code_of(file: Path, imported: Iterable[Path] = ()) -> list[Path]:
    """Return the files that make up the code of a topology, sorted. All of them lie below `root_of(file)`.

    Args:
        file: holds the topology.
        imported: further files that were seen to be imported. Those in other folders are ignored.
    """
    root = root_of(file)
    if (root / ORIGIN).exists():
        return sorted(files_of(root))
    found: set[Path] = set()
    seen: set[Path] = set()
    todo = [package_of(file) or file]
    todo += [package_of(path) or path for path in imported if path.is_relative_to(root) and not is_installed(path)]
    while todo:
        part = todo.pop()
        if part in seen:
            continue
        seen.add(part)
        for source in files_of(part):
            if source not in found:
                found.add(source)
                todo += _imports_of(source, root)
    return sorted(found)


def hash_of_code(file: Path) -> str:
    """The hash of the Python files of a topology's code; of an installed package, of the file alone."""
    if is_installed(file):
        return hash_of([file], file.parent)
    return hash_of((path for path in code_of(file) if path.suffix == ".py"), root_of(file))


def hash_of(files: Iterable[Path], root: Path) -> str:
    """The hash of the names of files below `root`, and of their contents."""
    total = sha256()
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in files):
        total.update(f"{name} {sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def top_level_names(files: Iterable[Path], root: Path) -> set[str]:
    """The modules and packages, by the names that import them, that files below `root` make up."""
    return {path.relative_to(root).parts[0].partition(".")[0] for path in files}


def _imports_of(source: Path, root: Path) -> list[Path]:
    """Return the files and packages below `root` that a source imports; none where it cannot be parsed."""
    if source.suffix != ".py":
        return []
    try:
        tree = ast.parse(source.read_bytes())
    except (SyntaxError, ValueError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [_find(root, alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = source.relative_to(root).parts[: -node.level] if node.level else ()
            module = [*package, *(node.module.split(".") if node.module else ())]
            # A name that is taken from a folder may be a module in it.
            found += [_find(root, [*module, alias.name]) for alias in node.names]
    return [path for path in found if path is not None]


def _find(root: Path, names: list[str]) -> Path | None:
    """Return the package or module that a dotted name begins with; None unless it lies below `root` and is no other's."""
    if not names or names[0] in sys.stdlib_module_names:
        return None
    folder = root
    for name in names:
        if (folder / name / "__init__.py").is_file():
            return None if is_installed(folder / name / "__init__.py") else folder / name
        for suffix in (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES):
            if (module := folder / f"{name}{suffix}").is_file():
                return None if is_installed(module) else module
        # A folder without __init__.py is a namespace: only the modules imported from it belong to the code.
        folder = folder / name
        if not folder.is_dir():
            return None
    return None
