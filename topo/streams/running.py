"""Programs of streams run from Python: `flow.run()`, `streams.run(function)` and `streams.submit(function)`.

A program that a module holds, or that one of its functions makes, runs from a copy of its file, as with `topo run`. Another goes
to the workers by cloudpickle.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.api.topology import Topology, TopologySource
from topo.errors import NotFoundError, TopoError, UserError
from topo.user_errors import PrintedErrors

if TYPE_CHECKING:
    from topo.launch.request import RunRequest
    from topo.launch.running import RunningTopology
    from topo.master.commands import RecordError
    from topo.master_process.restore_point import Start
    from topo.observability.status import StatusReport
    from topo.operate.log_files import LogFiles
    from topo.storage.state_folder import TopologyFolder

_active: list[int] = []
"""The thread of the run that this process is in: to run a program it imports the file again."""


def run(program: Callable[..., TopologySource | Topology], **parameters: Any) -> StatusReport:
    """Run the program that a function makes in processes of this machine until its input has ended; return the summary.

    What its functions print is printed here, and errors on standard error. The first Ctrl-C lets records in flight finish, the
    second one ends it; both raise KeyboardInterrupt then.

    Args:
        program: a function that returns a `StreamBuilder`, or a `Topology` of spouts and bolts. One at the top of a file is found
            there by each worker; another is called here, and its program goes to the workers by cloudpickle.
        parameters: its arguments.

    Raises:
        TopoError: the program cannot run, or a record was not processed.
        KeyboardInterrupt: it was interrupted.
    """
    return run_here(program, parameters)[0]


def submit(
    program: Callable[..., TopologySource | Topology], *, name: str | None = None, master: str | None = None, **parameters: Any
) -> RunningTopology:
    """Start the program that a function makes in the background, as `topo submit` does, and return it.

    Args:
        program: as for `run`.
        name: to run under; by default the program's own.
        master: a Spark cluster whose machines the workers run on, such as "spark://host:7077"; None: this machine.
        parameters: its arguments.

    Raises:
        TopoError: it cannot be started.
    """
    from topo.launch.cluster import submit_background
    from topo.storage.submitted import SparkCluster

    cluster = None if master is None else SparkCluster(master=master)
    with _guarded():
        return submit_background(_request(_reference_of(program), program, parameters, name=name, cluster=cluster))


def run_here(program: Any, parameters: Mapping[str, Any]) -> tuple[StatusReport, Path]:
    """Run a program, or that of a function, and return its summary and the folder of its components. See `run`."""
    from topo.launch.cluster import run_foreground
    from topo.master.outcome import OutcomeKind

    with _guarded(), closing(_Console()) as console:
        reference = _reference_to(program) if isinstance(program, TopologySource) else _reference_of(program)
        request = _request(reference, program, parameters)
        outcome = run_foreground(request, console.progress, console.incident, console.started)
    if outcome.kind in (OutcomeKind.DRAINED, OutcomeKind.CUT_SHORT, OutcomeKind.KILLED):
        raise KeyboardInterrupt(f"{console.folder.name}: {outcome.reason}")
    if outcome.exit_code:
        raise TopoError(f"{console.folder.name} has failed: {outcome.reason}; next: topo errors {console.folder.name}")
    return console.status, console.folder.components


def _reference_to(program: TopologySource) -> str | None:
    """Return the reference to a program that the module of a calling frame holds, and makes when it is imported."""
    from topo.user_code.load import load_topology

    frame = inspect.currentframe()
    while frame is not None:
        file = frame.f_globals.get("__file__")
        names = [name for name, held in frame.f_globals.items() if held is program]
        if names and file is not None and file.endswith(".py"):
            if frame.f_globals["__name__"] == "__main__" and len(sys.argv) > 1 and find_spec("cloudpickle"):
                return None  # its data may be made of the arguments, which no worker has
            reference = f"{Path(file).absolute()}:{names[0]}"
            with suppress(NotFoundError):
                if _drawn(load_topology(reference).topology) == _drawn(program.build()):
                    return reference
            return None  # all of it, or a part, is drawn below `if __name__ == "__main__":`
        frame = frame.f_back
    return None


def _drawn(topology: Topology) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(spec.id, spec.parallelism, spec.operators) for spec in topology.components]


def _reference_of(program: Callable[..., Any]) -> str | None:
    module = sys.modules.get(getattr(program, "__module__", ""))
    file, name = getattr(module, "__file__", None), getattr(program, "__name__", "")
    is_found = file is not None and file.endswith(".py") and getattr(module, name, None) is program
    if not is_found or file is None or (program.__module__ == "__main__" and _is_of_the_script_alone(program, Path(file))):
        return None
    return f"{Path(file).absolute()}:{name}"


def _is_of_the_script_alone(program: Callable[..., Any], file: Path) -> bool:
    """Return whether a function is below `if __name__ == "__main__":`, so that importing the file does not make it."""
    code = getattr(program, "__code__", None)
    guards = [one for one in ast.parse(file.read_bytes()).body if isinstance(one, ast.If) and "__name__" in ast.unparse(one.test)]
    return code is not None and any(one.lineno <= code.co_firstlineno <= (one.end_lineno or 0) for one in guards)


def _request(reference: str | None, program: Any, parameters: Mapping[str, Any], **more: Any) -> RunRequest:
    from topo.launch.request import RunRequest

    if reference is None:
        return RunRequest(program if isinstance(program, TopologySource) else program(**parameters), **more)
    for name, value in parameters.items():
        if not isinstance(value, Path) and not _is_plain(value):
            raise UserError(
                f"the parameter {name!r} is {value!r:.60} ({type(value).__name__}), and each worker makes the program again from "
                "text, numbers, lists and dicts; make it in the function"
            )
    return RunRequest(reference, parameters=parameters, **more)


def _is_plain(value: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


@contextmanager
def _guarded() -> Iterator[None]:
    """Refuse a run within a run: the file of the program starts it while it is imported."""
    here = threading.get_ident()
    if here in _active:
        raise UserError("a file that runs a program is imported by the run; put the call below `if __name__ == '__main__':`")
    if _active:
        raise UserError("another thread of this process runs or submits a program; call one after the other, or in two processes")
    _active.append(here)
    try:
        yield
    finally:
        _active.clear()


class _Console:
    """Prints what tasks print, and errors, each kind once."""

    folder: TopologyFolder
    status: StatusReport

    def __init__(self) -> None:
        self._logs: LogFiles | None = None
        self._printed = PrintedErrors()

    def started(self, folder: TopologyFolder, _start: Start) -> None:
        from topo.operate.log_files import LogFiles

        self.folder, self._logs = folder, LogFiles(folder.logs)

    def progress(self, status: StatusReport) -> None:
        self.status = status
        self._print()

    def incident(self, error: RecordError) -> None:
        if self._printed.is_new(error.component, error.kind, error.file, error.line, error.message):
            place = f" ({error.file}, line {error.line})" if error.file else ""
            print(f"{error.component}: {error.kind}: {error.message}{place}", file=sys.stderr)

    def close(self) -> None:
        self._print()
        if self._logs is not None:
            self._logs.close()

    def _print(self) -> None:
        for row in self._logs.new_rows() if self._logs is not None else ():
            if row.get("logger") == "stdout":
                print(row["message"])
