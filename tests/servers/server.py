"""A real server in a child process of the tests, which ends with them."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn, TypeVar
from urllib.request import urlopen

import pytest

_PR_SET_PDEATHSIG = 1
_READY_S = 60.0
_LIBC = ctypes.CDLL(None)


class ServerEndedError(RuntimeError):
    """A server has ended before it answered: its port may have been taken."""


@dataclass
class Server:
    """A server that answers.

    Attributes:
        address: where clients reach it.
    """

    address: str
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """End it in order."""
        self.thaw()
        self.process.terminate()
        self.process.wait()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """Let it answer nothing, with its connections open."""
        os.kill(self.pid, signal.SIGSTOP)
        # On a busy machine its other threads run on until one of them has taken the signal.
        until = time.monotonic() + _READY_S
        while not _is_stopped(self.pid) and time.monotonic() < until:
            time.sleep(0.002)

    def thaw(self) -> None:
        """Let it continue. Nothing happens when it has ended, as it has after a Ctrl-C in its terminal."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)


def start_server(
    command: Sequence[str],
    log: Path,
    address: str,
    is_ready: Callable[[], bool],
    ready_s: float = _READY_S,
    user: str | None = None,
) -> Server:
    """Start a server, as this or another user, and wait until a request is answered, at most for `ready_s`.

    An error has its log.

    Raises:
        ServerEndedError: it has ended.
        RuntimeError: it does not answer.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=_end_with_parent, user=user, group=user
        )
    until = time.monotonic() + ready_s
    while not is_ready():
        if (has_ended := process.poll() is not None) or time.monotonic() > until:
            process.kill()
            process.wait()
            error = ServerEndedError if has_ended else RuntimeError
            raise error(f"{' '.join(command)} does not answer:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.05)
    return Server(address, process)


def start_http_server(command_at: Callable[[int], Sequence[str]], log: Path, probe: str) -> Server:
    """Start a server of HTTP at a free port of loopback, and wait until it answers.

    Args:
        command_at: its command at a port.
        probe: the path of a page that it answers with status 200.

    Raises:
        ServerEndedError, RuntimeError: as `start_server`, in three attempts.
    """
    for attempt in range(3):
        # Somebody else may take the port before the server does.
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        try:
            return start_server(command_at(port), log, address, partial(_answers, f"{address}{probe}"))
        except ServerEndedError:
            if attempt == 2:
                raise
    raise AssertionError("unreachable")


def _answers(page: str) -> bool:
    try:
        with urlopen(page, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _is_stopped(pid: int) -> bool:
    """Whether all threads of a process are stopped."""
    states = [file.read_text().rpartition(")")[2].split()[0] for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(state == "T" for state in states)


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


S = TypeVar("S", bound=Server)


def in_foreground(name: str, start: Callable[[Path], S], end: Callable[[S], None] = Server.stop, about: str = "") -> None:
    """Run a server until it is interrupted.

    Args:
        name, about: are printed with its address.
        start: starts it with its data in a folder, which is dropped in the end.
        end: ends it.
    """
    with TemporaryDirectory(prefix="topo-server-") as folder:
        server = start(Path(folder))
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.default_int_handler)
        try:
            print(f"{name} at {server.address}{about}; ctrl-c ends it and drops its data", flush=True)
            server.process.wait()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt:
            # The same Ctrl-C may have ended it.
            if server.process.poll() is None:
                end(server)


def free_port() -> int:
    """Return a port of loopback that is free now, below those from which the kernel draws for clients.

    So it stays free while a server is down: a client that tries to connect may be given any of the others.
    """
    while True:
        port = random.SystemRandom().randrange(12_000, 32_000)
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


def need(modules: Sequence[str], server: str = "") -> None:
    """Skip the test where a module is missing; in CI, which installs them, let it fail."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        refuse_missing(", ".join(missing), server)


def refuse_missing(what: str, server: str = "") -> NoReturn:
    """Skip the test for lack of something; in CI let it fail. `server` is the argument of scripts/servers.sh."""
    command = f"sh scripts/servers.sh {server}".rstrip()
    reason = f"needs {what}, which `{command}` installs"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
