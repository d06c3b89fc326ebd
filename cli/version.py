"""`topo version`: the installed versions."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed_version

import click

from topo_cli.options import examples, json_option

LIBRARIES = ("pyzmq", "msgpack", "msgspec", "click", "rich", "psutil")


@click.command(epilog=examples("topo version", "topo version --json"))
@json_option
def command(as_json: bool) -> None:
    """Print the versions of topo, Python and the libraries in use. `topo --version` does the same."""
    import zmq

    from topo.version import __version__
    from topo_cli.output import print_json

    versions = {"topo": __version__, "python": platform.python_version(), "libzmq": zmq.zmq_version()}
    versions |= {name: installed_version(name) for name in LIBRARIES}
    if as_json:
        print_json(versions)
    else:
        for name, number in versions.items():
            click.echo(f"{name} {number}")
