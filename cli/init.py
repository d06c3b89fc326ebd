"""`topo init`: a project to begin with."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from topo_cli.exits import Failed
from topo_cli.options import FolderPath, examples

_TEMPLATES = Path(__file__).parent / "templates"
_SUFFIX = ".template"


@click.command(epilog=examples("topo init first && cd first && topo run wordcount.py", "topo init --streams typed"))
@click.argument("folder", metavar="DIR", type=FolderPath(file_okay=False, path_type=Path))
@click.option("--streams", "is_streams", is_flag=True, help="Write a program of typed streams instead of spouts and bolts.")
def command(folder: Path, *, is_streams: bool) -> None:
    """Write a topology that counts words, and a passing test of it, to DIR. Existing files are not overwritten."""
    from shlex import quote

    from topo_cli.output import talk

    project = _TEMPLATES / ("streams" if is_streams else "project")
    files = {file.name.removesuffix(_SUFFIX): file for file in sorted(project.glob(f"*{_SUFFIX}"))}
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise click.UsageError(f"{folder} has {' and '.join(there)} already; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, file in files.items():
            shutil.copyfile(file, folder / name)
            click.echo(folder / name)
    except OSError as error:
        raise Failed(f"cannot write to {folder}: {error.strerror}") from error
    talk(f"next: cd {quote(str(folder))} && topo run wordcount.py, and python -m pytest (pip install pytest)")
