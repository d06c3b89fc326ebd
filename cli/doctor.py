"""`topo doctor`: whether this machine can run topologies."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from topo_cli.exits import Exit
from topo_cli.options import examples, reading_options

_LEAST_LIBZMQ = (4, 3, 5)
_LEAST_FILES = 1024
_LEAST_FREE_BYTES = 1 << 30
_LONGEST_IPC_PATH = 107
"""Bytes that the address of a Unix socket can have."""
_SOCKET_NAME = "12345.control-1234567890"
"""As long as the names of sockets get."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a check.

    Attributes:
        state: "ok"; "warning" when topologies run, but not as they should; "error" when they do not.
        detail: the finding, and the fix where it is wrong.
    """

    check: str
    state: str
    detail: str


@click.command(epilog=examples("topo doctor", "topo doctor --json"))
@reading_options
def command(home: Path, as_json: bool) -> None:
    """Check that this machine can run topologies, and show how to fix each problem; exits 1 if there is a problem."""
    from topo_cli.output import print_json

    found = [finding for name, check in CHECKS.items() if (finding := _found(name, check, home)) is not None]
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        for finding in found:
            color = {"ok": "green", "warning": "yellow", "error": "red"}[finding.state]
            click.secho(f"{finding.state:<8}", fg=None if os.environ.get("NO_COLOR") else color, nl=False)
            click.echo(f"{finding.check}: {finding.detail}")
    if any(finding.state == "error" for finding in found):
        raise SystemExit(Exit.FAILED)


def _found(name: str, check: Callable[[Path], tuple[str, str] | None], home: Path) -> Diagnosis | None:
    from topo.errors import TopoError

    try:
        return None if (result := check(home)) is None else Diagnosis(name, *result)
    except (OSError, TopoError) as error:
        return Diagnosis(name, "error", str(error))


def _package(_home: Path) -> tuple[str, str]:
    from importlib import metadata

    import topo

    place = Path(topo.__file__).parent
    try:
        other = metadata.distribution("topo")
    except metadata.PackageNotFoundError:
        return "ok", f"topo {topo.__version__} in {place}"
    return "warning", (
        f"another project's package topo {other.version} is installed as well, and its files mix with those in {place}: "
        "pip uninstall topo, then pip install --force-reinstall --no-deps path/to/the/checkout"
    )


def _libzmq(_home: Path) -> tuple[str, str]:
    import zmq

    version = zmq.zmq_version()
    if zmq.zmq_version_info() < _LEAST_LIBZMQ:
        return "error", f"{version} has known faults; pip install --upgrade pyzmq"
    return "ok", version


def _hot_path(_home: Path) -> tuple[str, str]:
    from topo.hot import KIND, PLAIN_BECAUSE

    if KIND == "compiled":
        return "ok", KIND
    if os.environ.get("TOPO_PURE"):
        return "ok", f"{KIND} Python, as TOPO_PURE asks"
    checkout = _checkout()
    install = "--force-reinstall --no-deps path/to/the/checkout" if checkout is None else f"--no-deps -e {checkout}"
    fix = f"install a C compiler if there is none, then pip install {install}"
    if _is_built_plain(checkout):
        kind = "package" if checkout is None else "checkout"
        was = f"the installed {kind} was built without the compiled path, as by TOPO_PURE=1"
        return "ok", f"{KIND} Python: {was}. To compile it, {fix}"
    return "warning", f"{KIND} Python ({PLAIN_BECAUSE}), which takes more processor time a tuple: {fix}"


def _checkout() -> Path | None:
    """Return the checkout that topo runs from; None: an installed package."""
    import topo

    folder = Path(topo.__file__).parents[1]
    return folder if (folder / "setup.py").exists() else None


def _is_built_plain(checkout: Path | None) -> bool:
    """Whether this is an installed package for any platform: one whose compilation failed is for this platform."""
    import sys
    from importlib import metadata

    import topo

    with suppress(metadata.PackageNotFoundError):
        package = metadata.distribution("topo-engine")
        if checkout is None:
            is_this = Path(str(package.locate_file("topo/__init__.py"))) == Path(topo.__file__)
        else:
            # `make` installs for any platform, and compiles then, if it can: the stamp shows that it has tried.
            is_tried = Path(sys.prefix, "compiled.stamp").exists()
            is_this = f'"{checkout.as_uri()}"' in (package.read_text("direct_url.json") or "") and not is_tried
        return is_this and "Root-Is-Purelib: true" in (package.read_text("WHEEL") or "")
    return False


def _curve(_home: Path) -> tuple[str, str]:
    import zmq

    if not zmq.has("curve"):
        return "warning", "this libzmq cannot encrypt: transport=tcp off loopback is refused; pip install --force-reinstall pyzmq"
    return "ok", "available"


def _state_folder(home: Path) -> tuple[str, str]:
    from topo.storage.state_folder import StateFolder, write_atomically

    StateFolder(home)
    probe = home / f".doctor-{os.getpid()}"
    write_atomically(probe, b"topo")
    probe.unlink()
    mode = home.stat().st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        return "warning", f"others can write to {home} and move its files away: chmod 700 {home}"
    private = home if not mode & 0o077 else home / "topologies"
    return "ok", f"{home} is writable, and {private} is yours alone"


def _disk(home: Path) -> tuple[str, str] | None:
    import shutil

    try:
        free = shutil.disk_usage(home).free
    except OSError:
        # The check of the state folder reports it.
        return None
    if free < _LEAST_FREE_BYTES:
        return "warning", f"{free >> 20} MiB are free at {home}; logs and dead letters need room: free some, or set TOPO_HOME"
    return "ok", f"{free / (1 << 30):.1f} GiB free at {home}"


@contextmanager
def _socket_folder() -> Iterator[Path]:
    from topo.storage.socket_folder import make_socket_folder, remove_socket_folder

    folder = make_socket_folder(os.environ)
    try:
        yield folder
    finally:
        remove_socket_folder(folder)


def _sockets(_home: Path) -> tuple[str, str]:
    with _socket_folder() as folder:
        length = len(os.fsencode(folder / _SOCKET_NAME))
        if length > _LONGEST_IPC_PATH:
            return "error", f"paths of sockets below {folder.parent} are too long ({length} bytes); set TMPDIR to a shorter path"
        _exchange(f"ipc://{folder}/doctor")
        return "ok", f"below {folder.parent}"


def _loopback(_home: Path) -> tuple[str, str]:
    _exchange("tcp://127.0.0.1:*")
    return "ok", "127.0.0.1 carries messages"


def _exchange(address: str) -> None:
    """Send one message from one socket to another. Raises OSError when it does not arrive."""
    import zmq

    with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        push.linger = 0
        try:
            pull.bind(address)
            push.connect(str(pull.getsockopt_string(zmq.LAST_ENDPOINT)))
            push.send(b"topo")
            if not pull.poll(2000):
                raise OSError(f"a message over {address} did not arrive within 2 s; a firewall may be in the way")
        except zmq.ZMQError as error:
            raise OSError(f"{address}: {error}") from error


def _open_files(_home: Path) -> tuple[str, str]:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and limit < _LEAST_FILES:
        return "warning", f"{limit} is low: each edge between tasks takes some; raise it with: ulimit -n {_LEAST_FILES}"
    return "ok", "no limit" if limit == resource.RLIM_INFINITY else f"at most {limit:,}"


def _processors(_home: Path) -> tuple[str, str]:
    from topo.launch.cores import usable_cores
    from topo.plan.placement import most_workers

    cores = usable_cores()
    return "ok", f"{cores}; a topology has up to {most_workers(cores)} workers here, unless --workers gives another number"


def _workers(_home: Path) -> tuple[str, str]:
    import subprocess
    import sys

    from topo.launch.worker_command import WORKER_MODULE, worker_environment

    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import {WORKER_MODULE}"],
        env=worker_environment(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        return "error", f"a new Python process cannot import topo ({last}); {sys.executable} -m pip install path/to/the/checkout"
    return "ok", f"{sys.executable} imports topo"


def _spark(_home: Path) -> tuple[str, str]:
    from importlib import metadata

    from topo.errors import TopoEnvironmentError
    from topo.launch.spark.java import JavaMissing, find_java
    from topo.spark.session import check_spark

    try:
        check_spark()
    except TopoEnvironmentError as error:
        return "ok", f"not installed, and only topologies that read or write with Spark need it ({error})"
    try:
        java = find_java()
    except JavaMissing as error:
        return "warning", str(error)
    return "ok", f"pyspark {metadata.version('pyspark')}, Java {java.version} of {java.source} ({java.home})"


CHECKS = {
    "package": _package,
    "per-tuple path": _hot_path,
    "libzmq": _libzmq,
    "encryption": _curve,
    "state folder": _state_folder,
    "disk": _disk,
    "sockets": _sockets,
    "loopback": _loopback,
    "open files": _open_files,
    "processors": _processors,
    "workers": _workers,
    "spark": _spark,
}
