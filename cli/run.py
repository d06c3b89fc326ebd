"""`topo run`: a topology in the foreground."""

from __future__ import annotations

import errno
import json
import logging
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from topo_cli.exits import Exit, let_go_of_output
from topo_cli.options import examples, request_options, ui_option

if TYPE_CHECKING:
    from topo.launch.request import RunRequest
    from topo.launch.spares import EarlySpares
    from topo.master.commands import RecordError
    from topo.master_process.restore_point import Start
    from topo.observability.status import StatusReport
    from topo.operate.log_files import LogFiles
    from topo.storage.state_folder import TopologyFolder
    from topo_cli.screen import Screen

_LOG_BYTES_AT_ONCE = 1 << 20


@click.command(
    epilog=examples(
        "topo run wordcount.py",
        "topo run package.module:topology -p path=in.txt --workers 2",
        "topo run wordcount.py -s message_timeout=5s --json > summary.json",
        "topo run wordcount.py --log-format json 2> log.jsonl",
        "topo run wordcount.py --master spark://host:7077 --workers 4",
    )
)
@request_options
@ui_option
@click.option("-q", "--quiet", is_flag=True, help="Show errors, but no progress.")
@click.option("--json", "as_json", is_flag=True, help="Print only the summary to stdout, as JSON; printed lines go to stderr.")
@click.option(
    "--log-format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="json: only log rows and errors go to stderr, as JSON lines.",
)
@click.pass_obj
def command(early: EarlySpares | None, request: RunRequest, ui: bool, quiet: bool, as_json: bool, log_format: str) -> None:
    """Run TOPOLOGY in processes of this machine until its sources have ended, and report the outcome of its messages.

    With --master its workers run on the hosts of a Spark cluster, and its topology master here: they end with this command.

    Exits 0 when every message was processed, else 1 with the reason. Ctrl-C lets messages in flight finish, a second Ctrl-C ends
    it at once; the exit code is 130 then.
    """
    from topo.launch.cluster import AlreadyDone, run_foreground
    from topo.master.outcome import OutcomeKind
    from topo_cli.output import print_json, talk
    from topo_cli.raw_output import raw_output_note
    from topo_cli.screen import make_screen
    from topo_cli.wait_for_start import talk_of_done, talk_of_spark

    is_log_json = log_format == "json"
    if request.cluster is not None:
        if early is not None:
            early.end()
        if not is_log_json:
            talk_of_spark(request.cluster)
    log = JsonLog(request.name or "") if is_log_json else None
    say = talk if log is None else lambda line: log.write([line], "INFO")
    with _page(request.home, ui, say), make_screen(quiet=quiet or is_log_json) as screen, _own_logging(log):
        show = Show(screen, prints_to_stdout=not as_json, log=log)
        try:
            outcome = run_foreground(request, show.progress, show.incident, show.started, early)
        except AlreadyDone as done:
            if not is_log_json:
                talk_of_done(done.folder.name)
            if as_json:
                print_json(done.folder.last_summary())
            raise SystemExit(Exit.DONE) from None
        show.close()
    if show.logs is not None and not quiet and (note := raw_output_note(show.logs)):
        say(note)
    was_interrupted = outcome.kind in (OutcomeKind.DRAINED, OutcomeKind.CUT_SHORT, OutcomeKind.KILLED)
    code = Exit.INTERRUPTED if was_interrupted else Exit(outcome.exit_code)
    if show.lost is not None:
        name = show.last["topology"]
        why = f"the output is taken no more ({show.lost.strerror})"
        rest = f", so {name} was drained; `topo resume {name}` continues it in the background" if was_interrupted else ""
        say(f"{why}{rest}; `topo logs {name}` has all of it")
        raise SystemExit(code or (Exit.UNREAD if show.lost.errno == errno.EPIPE else Exit.FAILED))
    _print_summary(show.last, code, as_json, has_advice=not is_log_json)
    raise SystemExit(code)


@contextmanager
def _page(home: Path | None, is_wanted: bool, say: Callable[[str], object]) -> Iterator[None]:
    """Serve the web page as long as the run lasts; `say` takes its address."""
    if not is_wanted or home is None:
        yield
        return
    from topo.ui.child import PageProcess

    page = PageProcess.start(home, attached=True)
    say(f"the page: {page.link}")
    try:
        yield
    finally:
        page.end()


@contextmanager
def _own_logging(log: JsonLog | None) -> Iterator[None]:
    """Keep topo's own rows away from handlers that the topology's module adds, with `logging.basicConfig` for instance."""
    logger = logging.getLogger("topo")
    handler = logging.lastResort if log is None else LogHandler(log)
    assert handler is not None
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = True
        logger.removeHandler(handler)


class Show:
    """Shows a run on a screen: its figures, the printed lines of its tasks, and its errors, each kind once.

    Args:
        prints_to_stdout: printed lines of tasks are data.
        log: takes rows of logs and errors in place of the screen.

    Attributes:
        logs: the run's folder of logs, once it has begun.
        lost: why the output takes no more. Nothing is shown then, and the topology drains, as when the terminal is closed.
    """

    def __init__(self, screen: Screen, *, prints_to_stdout: bool, log: JsonLog | None = None) -> None:
        from topo.user_errors import PrintedErrors

        self._log = log
        self.last: StatusReport = {}
        self._screen = screen
        self._prints_to_stdout = prints_to_stdout
        self.logs: Path | None = None
        self._logs: LogFiles | None = None
        self._printed = PrintedErrors()
        self.lost: OSError | None = None
        self._is_running = True

    @contextmanager
    def _output(self) -> Iterator[None]:
        """Notice within the block that the output takes no more, as when its reader has ended or the disk is full."""
        try:
            yield
        except OSError as error:
            self.lost = error
            let_go_of_output()
            if self._is_running:
                signal.raise_signal(signal.SIGHUP)

    def started(self, folder: TopologyFolder, start: Start) -> None:
        """The run begins, from there; its logs are in this folder."""
        from topo.operate.log_files import LogFiles
        from topo_cli.wait_for_start import lines_of_start

        lines = lines_of_start(folder, start.text)
        self.logs = folder.logs
        self._logs = LogFiles(folder.logs)
        with self._output():
            if self._log is None:
                self._screen.report(lines)
            else:
                self._log.topology = folder.name
                self._log.write(lines, "INFO")

    def progress(self, status: StatusReport) -> None:
        """New figures of the run."""
        self.last = status
        if self._log is not None:
            self._log.epoch = status["epoch"]
        if self.lost is None:
            with self._output():
                self._show_logs()
                self._screen.progress(status)

    def incident(self, error: RecordError) -> None:
        """Something went wrong."""
        if self.lost is None:
            with self._output():
                self._incident(error)

    def _incident(self, error: RecordError) -> None:
        if self._log is not None:
            self._log.error(error)
            return
        if self._printed.is_new(error.component, error.kind, error.file, error.line, error.message):
            where = error.component or ("the topology" if error.worker is None else f"worker {error.worker}")
            place = f" ({error.file}, line {error.line})" if error.file else ""
            self._screen.report([f"{where}: {error.kind}: {error.message}{place}"], "red")

    def close(self) -> None:
        """The run is over, and all its logs are written."""
        self._is_running = False
        if self.lost is None:
            with self._output():
                while self._show_logs():
                    pass
        if self._logs is not None:
            self._logs.close()

    def _show_logs(self) -> bool:
        """Show new rows of the logs, up to a limit, since the master waits meanwhile; False when there are none."""
        from topo.operate.log_files import is_at_least, is_printed, source_of

        rows = self._logs.new_rows(_LOG_BYTES_AT_ONCE) if self._logs is not None else []
        data = [row["message"] for row in rows if self._is_data(row)]
        if self._log is not None:
            self._screen.printed(data)
            self._log.rows(row for row in rows if not self._is_data(row))
            return bool(rows)
        talk = [row["message"] for row in rows if is_printed(row) and not self._is_data(row)]
        logged = [row for row in rows if not is_printed(row) and is_at_least(row, "WARNING")]
        self._screen.printed(data)
        self._screen.report(talk)
        self._screen.report([f"{source_of(row)}: {row['level']}: {row['message']}" for row in logged], "yellow")
        return bool(rows)

    def _is_data(self, row: Mapping[str, Any]) -> bool:
        return self._prints_to_stdout and row.get("logger") == "stdout"


class JsonLog:
    """Writes rows of logs to standard error, a JSON object a line; those of this process have the same fields.

    Attributes:
        topology: its name.
        epoch: of the topology, 0 before the first.
    """

    def __init__(self, topology: str) -> None:
        self.topology = topology
        self.epoch = 0

    def rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows of workers."""
        for row in rows:
            click.echo(json.dumps(row), err=True)

    def write(self, messages: Iterable[str], level: str, **more: Any) -> None:
        """Write messages of this process, a row each."""
        now = datetime.now(UTC)
        at = f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z"
        own = {"epoch": self.epoch, "worker": None, "task": None, "component": None} | more
        self.rows(
            {"time": at, "level": level, "logger": "topo.run", "topology": self.topology, "message": message} | own
            for message in messages
        )

    def error(self, error: RecordError) -> None:
        """Write an error of the topology."""
        where: dict[str, Any] = {"worker": error.worker, "task": error.task, "component": error.component or None}
        where |= {"kind": error.kind, "file": error.file, "line": error.line} | (
            {"exception": error.traceback} if error.traceback else {}
        )
        self.write([f"{error.kind}: {error.message}"], "ERROR", **where)


class LogHandler(logging.Handler):
    """Writes warnings and errors of this process to a log."""

    def __init__(self, log: JsonLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as a row."""
        more = {"exception": logging.Formatter().formatException(record.exc_info)} if record.exc_info else {}
        self._log.write([record.getMessage()], record.levelname, **more)


def _print_summary(status: StatusReport, exit_code: Exit, as_json: bool, *, has_advice: bool) -> None:
    from topo_cli.output import make_console, print_json, talk
    from topo_cli.summary import summary_text

    if as_json:
        print_json(status)
    else:
        console = make_console()
        console.print()
        console.print(summary_text(status, exit_code), soft_wrap=True)
        name = status["topology"]
        if not has_advice:
            return
        if exit_code == Exit.FAILED:
            dead_letters = f"topo dead-letters {name}, " if status["outcome"]["dead_letters"] else ""
            talk(f"next: topo errors {name}, {dead_letters}topo logs {name}")
        elif exit_code == Exit.INTERRUPTED:
            talk(f"next: topo resume {name} continues it in the background")
