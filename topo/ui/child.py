"""The page as a child of another command: of `topo run`, which it ends with, or of `topo submit`, which it outlives."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from topo.errors import TopoEnvironmentError, UserError
from topo.extras import EXTRAS, pip_install
from topo.storage.files import open_private
from topo.storage.state_folder import StateFolder
from topo.ui.server import served

_START_S = 20.0
_LOOK_S = 0.05
_END_S = 5.0


def check_extra(home: Path) -> None:
    """Raise UserError when the page of a home is not served, and cannot be, since the extra is missing."""
    if served(home) is None and (missing := [name for name in ("starlette", "uvicorn", "websockets") if find_spec(name) is None]):
        raise UserError(f"--ui needs {', '.join(missing)}: {pip_install(EXTRAS['ui'])}")


class PageProcess:
    """A process that serves the page of a home.

    Attributes:
        link: the address, with the token.
    """

    def __init__(self, link: str, process: subprocess.Popen[bytes] | None) -> None:
        self.link = link
        self._process = process

    @classmethod
    def start(cls, home: Path, *, attached: bool) -> PageProcess:
        """Start a process, unless one serves the home already.

        Args:
            attached: it ends with this process.

        Raises:
            UserError: as `check_extra`.
            TopoEnvironmentError: it does not start; names its output.
        """
        if (known := served(home)) is not None:
            return cls(known.link(), None)
        check_extra(home)
        StateFolder(home)
        command = [sys.executable, "-P", "-m", "topo_cli", "ui", "--home", str(home)]
        command += ["--with-parent", str(os.getpid())] if attached else []
        log = home / "ui.log"
        # Ctrl-C of the terminal is for the run, whose end can be watched on the page.
        with open(open_private(log, os.O_WRONLY | os.O_TRUNC), "wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        until, is_over = time.monotonic() + _START_S, False
        while not is_over and time.monotonic() < until:
            is_over = process.poll() is not None
            if (record := served(home)) is not None and (record.pid == process.pid or is_over):
                # Another one may have begun in the same moment; before this one has ended, the record may be of the last server.
                return cls(record.link(), process if record.pid == process.pid else None)
            time.sleep(_LOOK_S)
        process.kill()
        raise TopoEnvironmentError(f"the page does not start; its output is in {log}")

    def end(self) -> None:
        """End the process, if it was started here."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
