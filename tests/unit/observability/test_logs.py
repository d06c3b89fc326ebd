from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from topo.observability.logs import TaskLog, start_logging

Start = Callable[[], TaskLog]
Rows = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "worker-1.log"


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    """Starts logging when called: in the test itself, since pytest changes the streams between a fixture and its test."""
    started: list[TaskLog] = []

    def begin() -> TaskLog:
        started.append(start_logging(path, worker=1, components={3: "count", 4: "split"}, topology="words"))
        return started[0]

    yield begin
    started[0].close()


@pytest.fixture
def rows(path: Path) -> Rows:
    return lambda: [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_says_when_how_and_from_which_task(start: Start, rows: Rows) -> None:
    log = start()
    log.enter(3)
    logging.getLogger("mine").warning("lost %d", 5)
    log.enter(None)
    log.epoch = lambda: 7
    logging.getLogger("topo").info("idle")
    first, second = rows()
    assert first.pop("time").endswith("Z")
    place = {"topology": "words", "epoch": 0, "worker": 1, "task": 3, "component": "count"}
    assert first == {"level": "WARNING", "logger": "mine", "message": "lost 5", **place}
    assert second["epoch"] == 7
    assert (second["task"], second["component"]) == (None, None)


def test_a_line_of_a_traced_message_has_its_root_unless_it_is_of_another_thread(start: Start, rows: Rows) -> None:
    log = start()
    log.traced = lambda task: ["00000000000000ab"] if task == 3 else []
    log.enter(3)
    print("within")
    other = threading.Thread(target=logging.getLogger("mine").warning, args=("beside",))
    other.start()
    other.join()
    log.enter(4)
    print("another task")
    log.enter(None)
    print("no task")
    log.traced = None
    log.enter(3)
    print("untraced")
    assert [(row["message"], row.get("trace")) for row in rows()] == [
        ("within", ["00000000000000ab"]),
        ("beside", None),
        ("another task", None),
        ("no task", None),
        ("untraced", None),
    ]


def test_what_is_printed_is_a_line_of_the_task_that_prints(start: Start, rows: Rows) -> None:
    log = start()
    log.enter(3)
    print("one", 1)
    log.enter(4)
    print("two\nthree", file=sys.stderr)
    assert [(row["logger"], row["component"], row["message"]) for row in rows()] == [
        ("stdout", "count", "one 1"),
        ("stderr", "split", "two"),
        ("stderr", "split", "three"),
    ]


def test_a_begun_line_waits_for_its_end_or_a_flush_or_the_close(start: Start, rows: Rows) -> None:
    log = start()
    print("a", end="")
    print("b", end="")
    sys.stdout.flush()
    print("c", end="")
    log.close()
    assert [row["message"] for row in rows()] == ["ab", "c"]


def test_a_line_without_end_is_cut(start: Start, rows: Rows) -> None:
    start()
    for _ in range(5):
        print("x" * 10_000, end="")
    print("y" * 40_000)
    messages = [row["message"] for row in rows()]
    assert max(map(len, messages)) <= 16 * 1024
    assert "".join(messages) == "x" * 50_000 + "y" * 40_000


def test_threads_have_lines_and_tasks_of_their_own(start: Start, rows: Rows) -> None:
    log = start()
    log.enter(3)
    log.default_task = 4
    print("main ", end="")

    def other() -> None:
        print("other")

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    print("continues")
    assert [(row["component"], row["message"]) for row in rows()] == [("split", "other"), ("count", "main continues")]


def test_exceptions_and_warnings_are_logged(start: Start, rows: Rows) -> None:
    start()
    try:
        raise KeyError("lost")
    except KeyError:
        logging.getLogger("mine").exception("failed")
    warnings.warn("old", stacklevel=1)
    failed, warned = rows()
    assert "KeyError: 'lost'" in failed["exception"]
    assert "old" in warned["message"] and warned["level"] == "WARNING"
    assert warned["message"].endswith("stacklevel=1)"), "the line of code, without its newline"


def test_warnings_and_tracebacks_name_the_users_own_files(start: Start, rows: Rows) -> None:
    start().shown = lambda text: text.replace("/home/topologies/words/code/1f", "/src")
    copy = "/home/topologies/words/code/1f/words.py"
    warnings.showwarning("old", UserWarning, copy, 3)
    print(f'  File "{copy}", line 3, in f', file=sys.stderr)
    print(copy)
    assert [row["message"].splitlines()[0] for row in rows()] == [
        "/src/words.py:3: UserWarning: old",
        '  File "/src/words.py", line 3, in f',
        copy,
    ]


ODD = """
import logging, sys
from pathlib import Path
from topo.observability.logs import start_logging

log = start_logging(Path(sys.argv[1]), worker=1, components={})
logging.getLogger("mine").info("two\\nlines é \\udcff \\u2028")
log.close()
"""


def test_odd_characters_stay_on_one_line(path: Path, rows: Rows) -> None:
    # In a separate process: pytest captures logs too, and cannot carry these from one process to another.
    subprocess.run([sys.executable, "-c", ODD, str(path)], check=True, capture_output=True)
    assert [row["message"] for row in rows()] == ["two\nlines é \udcff \u2028"]


CONFIGURED = """
import logging, logging.config, sys
from pathlib import Path
from topo.observability.logs import start_logging

log = start_logging(Path(sys.argv[1]), worker=1, components={})
print("before")
logging.basicConfig(level=logging.WARNING, format="MINE %(message)s", force=True)
print("printed")
logging.getLogger("mine").warning("logged")
logging.getLogger("topo.user.words.count.0").warning("logged by context.logger")
logging.getLogger("topo.worker").warning("logged by topo")
logging.config.dictConfig({"version": 1, "root": {"level": "ERROR", "handlers": []}})
print("printed again")
log.close()
"""


def test_lines_of_code_that_configures_the_root_logger_are_in_the_log(path: Path, rows: Rows) -> None:
    # In a separate process: its configuration closes the handlers of pytest.
    subprocess.run([sys.executable, "-c", CONFIGURED, str(path)], check=True, capture_output=True)
    assert [(row["logger"], row["message"]) for row in rows()] == [
        ("stdout", "before"),
        ("stdout", "printed"),
        ("stderr", "MINE logged"),
        ("stderr", "MINE logged by context.logger"),
        ("topo.worker", "logged by topo"),
        ("stdout", "printed again"),
    ]


MISFIT = """
import logging, sys
from pathlib import Path
from topo.observability.logs import start_logging

log = start_logging(Path(sys.argv[1]), worker=1, components={})
logging.getLogger("mine").warning("%s of %s", 1)
log.close()
"""


def test_a_record_whose_arguments_do_not_fit_is_a_line_with_its_place(path: Path, rows: Rows) -> None:
    # In a separate process: pytest raises for such a record.
    subprocess.run([sys.executable, "-c", MISFIT, str(path)], check=True, capture_output=True)
    (row,) = rows()
    assert row["level"] == "WARNING"
    assert row["message"] == "%s of %s (<string>, line 7: TypeError: not enough arguments for format string)"


def test_a_log_is_bounded(tmp_path: Path) -> None:
    log = start_logging(tmp_path / "log", worker=1, max_bytes=10_000, kept=2)
    for number in range(1000):
        print("line", number)
    log.close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["log", "log.1", "log.2"]
    assert sum(entry.stat().st_size for entry in tmp_path.iterdir()) <= 30_000
    assert json.loads((tmp_path / "log").read_text().splitlines()[-1])["message"] == "line 999"


def test_a_log_that_cannot_be_written_disturbs_nobody(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = start_logging(tmp_path / "missing" / "log", worker=1)
    print("lost")
    log.close()
    assert "cannot log" in capfd.readouterr().err


def test_closing_gives_the_streams_back(tmp_path: Path) -> None:
    before = (sys.stdout, sys.stderr, list(logging.getLogger().handlers))
    log = start_logging(tmp_path / "log", worker=1)
    assert sys.stdout is not before[0]
    log.close()
    log.close()
    assert (sys.stdout, sys.stderr, list(logging.getLogger().handlers)) == before


def test_output_of_a_child_process_is_lines_of_the_task_that_started_it(start: Start, rows: Rows) -> None:
    log = start()
    for task in (3, 4):
        log.enter(task)
        command = [sys.executable, "-c", f"import sys; print('out', {task}); print('err', {task}, file=sys.stderr)"]
        subprocess.run(command, stdout=sys.stdout, stderr=sys.stderr, check=True)
    log.close()

    assert sorted((row["logger"], row["component"], row["message"]) for row in rows()) == [
        ("stderr", "count", "err 3"),
        ("stderr", "split", "err 4"),
        ("stdout", "count", "out 3"),
        ("stdout", "split", "out 4"),
    ]


def test_bytes_written_to_the_buffer_are_lines_also_when_a_character_is_split(start: Start, rows: Rows) -> None:
    start()
    data = "größe\n".encode()
    assert sys.stdout.buffer.write(data[:3]) == 3
    sys.stdout.buffer.write(memoryview(data)[3:])
    sys.stdout.buffer.write(b"\xff\n")

    assert [row["message"] for row in rows()] == ["größe", "\\xff"]


def test_reconfigured_encoding_is_that_of_the_bytes(start: Start, rows: Rows) -> None:
    start()
    sys.stdout.reconfigure(encoding="latin-1", errors="replace", line_buffering=True)  # type: ignore[union-attr]
    sys.stdout.buffer.write("größe\n".encode("latin-1"))

    assert [row["message"] for row in rows()] == ["größe"]
    with pytest.raises(LookupError):
        sys.stdout.reconfigure(encoding="no such")  # type: ignore[union-attr]


def test_closing_leaves_no_descriptor_and_no_thread(start: Start) -> None:
    log = start()
    before = set(threading.enumerate())
    descriptor = sys.stdout.fileno()
    assert sys.stdout.fileno() == descriptor
    log.close()

    assert set(threading.enumerate()) <= before
    with pytest.raises(OSError):
        os.fstat(descriptor)
