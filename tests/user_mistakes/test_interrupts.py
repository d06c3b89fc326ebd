"""Ctrl-C at odd moments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.drive import PATIENCE_S

pytestmark = pytest.mark.integration

INTERRUPT = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"


def topo(*arguments: object, prelude: str = "", ignored: bool = False) -> tuple[int, str]:
    """Call `topo` as its script does; return exit code and stderr."""
    program = f"import sys\nfrom topo_cli.entry import main\n{prelude}\nmain()"
    handler = signal.SIG_IGN if ignored else signal.SIG_DFL

    def prepare() -> None:
        signal.signal(signal.SIGINT, handler)

    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
        preexec_fn=prepare,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", ["run", "validate"])
def test_ctrl_c_while_the_topology_is_imported_prints_no_traceback(tmp_path: Path, command: str) -> None:
    """The user presses Ctrl-C right after Enter, while modules are still imported."""
    file = tmp_path / "flow.py"
    file.write_text(INTERRUPT + "raise SystemError('never reached')\n")
    prelude = f"import os; os.environ['TOPO_HOME'] = {str(tmp_path / 'home')!r}"
    assert topo(command, file, prelude=prelude) == (130, "interrupted\n")


def test_ctrl_c_between_imports_prints_no_traceback() -> None:
    """The same, a moment later."""
    prelude = (
        "import topo_cli.version, os, signal\n"
        "topo_cli.version.command.callback = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)"
    )
    code, stated = topo("version", prelude=prelude)
    assert (code, stated.strip()) == (130, "interrupted")


def test_a_command_in_the_background_of_a_script_is_not_interrupted() -> None:
    """`topo version &` in a script without job control: Ctrl-C is for the others."""
    prelude = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)"
    assert topo("version", prelude=prelude, ignored=True)[0] == 0


@pytest.fixture
def command() -> Path:
    """The installed command."""
    return Path(sys.executable).with_name("topo")


def test_ctrl_c_while_python_itself_starts_prints_no_traceback(tmp_path: Path, command: Path) -> None:
    """The first milliseconds: Python has its own handler by then, and none of topo's modules is imported."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPT)
    done = subprocess.run(
        [command, "version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_the_command_starts_where_env_cannot_hold_signals_back(tmp_path: Path, command: Path) -> None:
    """As on BusyBox or macOS; also through a symbolic link, as of pipx."""
    env, link = tmp_path / "env", tmp_path / "topo"
    env.write_text('#!/bin/sh\necho "env: unrecognized option" >&2\nexit 125\n')
    env.chmod(0o755)
    link.symlink_to(command)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run([link, "version"], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:5], done.stderr) == (0, "topo ", "")
