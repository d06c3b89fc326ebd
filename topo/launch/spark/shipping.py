"""The files shipped to the hosts of a cluster: the user's code, modules beside it, and topo itself where hosts lack it."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable
from pathlib import Path

from topo.user_code.copy import check_importable, parse_reference


def zip_code(reference: str, code: Path, into: Path) -> Path | None:
    """Pack the copy that a reference names, with its folder below `code`; None when it names installed code."""
    target = Path(parse_reference(reference).target)
    if not target.is_relative_to(code):
        return None
    root = code / target.relative_to(code).parts[0]
    files = [root] if root.is_file() else [path for path in sorted(root.rglob("*")) if path.is_file()]
    return _zip(into / f"topo-code-{root.name}.zip", code, (path for path in files if "__pycache__" not in path.parts))


def zip_topo(into: Path) -> Path:
    """Pack topo itself, as it runs here."""
    package = topo_folder()
    return _zip(into / f"topo-{topo_digest()}.zip", package.parent, _sources(package))


def topo_folder() -> Path:
    return Path(__file__).parents[2]


def topo_digest() -> str:
    """A hash of topo's sources; the probe computes the same of what a host has installed."""
    package = topo_folder()
    total = hashlib.sha256()
    for path in _sources(package):
        total.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:16]


def importable_file(path: Path, into: Path) -> Path:
    """Return a file that Spark puts on the path of its workers: the one given, or a wheel under another name."""
    check_importable(path)
    if path.suffix != ".whl":
        return path
    renamed = into / f"{path.stem}.zip"
    renamed.write_bytes(path.read_bytes())
    return renamed


def _sources(package: Path) -> list[Path]:
    return sorted(package.rglob("*.py"))


def _zip(path: Path, root: Path, files: Iterable[Path]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for file in files:
            archive.write(file, file.relative_to(root))
    return path
