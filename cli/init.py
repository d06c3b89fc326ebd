"""`topo init`: a project to begin with."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from topo_cli.exits import Failed
from topo_cli.options import examples

_PROJECT = Path(__file__).parent / "templates" / "project"


@click.command(epilog=examples("topo init first && cd first && topo run wordcount.py"))
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
def command(folder: Path) -> None:
    """Write a topology that counts words, and a test of it that passes, to DIR. Nothing that exists is overwritten."""
    from topo_cli.output import talk

    files = sorted(_PROJECT.glob("*.py"))
    there = [file.name for file in files if (folder / file.name).exists()]
    if there:
        raise click.UsageError(f"{folder} has {' and '.join(there)} already; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copyfile(file, folder / file.name)
            click.echo(folder / file.name)
    except OSError as error:
        raise Failed(f"cannot write to {folder}: {error.strerror}") from error
    talk(f"next: cd {folder} && topo run wordcount.py, and python -m pytest (pip install pytest)")
