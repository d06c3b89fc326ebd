"""Ctrl-C at odd moments."""

from __future__ import annotations

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
