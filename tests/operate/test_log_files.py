from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

from topo.operate.log_files import LogFiles, is_at_least, moment
from topo.storage.state_folder import StateFolder
from topo.ui.reading import logs


def line(second: int, message: str) -> str:
    return json.dumps({"time": f"2026-11-20T10:00:{second:02}.000Z", "level": "INFO", "message": message}) + "\n"


def messages(files: LogFiles) -> list[str]:
    return [row["message"] for row in files.new_rows()]


def test_rows_of_all_workers_come_in_the_order_of_time(tmp_path: Path) -> None:
    (tmp_path / "worker-0.log").write_text(line(1, "a") + line(3, "c"))
    (tmp_path / "worker-1.log").write_text(line(2, "b"))
    with LogFiles(tmp_path) as files:
        assert messages(files) == ["a", "b", "c"]
        assert messages(files) == []


def test_what_is_appended_is_read_once_and_a_half_line_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    with LogFiles(tmp_path) as files:
        assert messages(files) == []
        whole = line(1, "a")
        path.write_text(whole[:10])
        assert messages(files) == []
        path.write_text(whole)
        assert messages(files) == ["a"]


def test_when_a_full_file_is_replaced_the_rest_of_it_comes_before_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    path.write_text(line(1, "a"))
    with LogFiles(tmp_path) as files:
        assert messages(files) == ["a"]
        with path.open("a") as log:
            log.write(line(2, "b"))
        path.rename(tmp_path / "worker-0.log.1")
        path.write_text(line(3, "c"))
        assert messages(files) == ["b", "c"]


def test_a_reader_that_lags_behind_by_several_full_files_misses_none(tmp_path: Path) -> None:
    path, first, second = (tmp_path / f"worker-0.log{end}" for end in ("", ".1", ".2"))
    path.write_text("".join(line(number, f"a{number}") for number in range(9)))
    with LogFiles(tmp_path) as files:
        found = [row["message"] for row in files.new_rows(most_bytes=100)]
        path.rename(second)
        first.write_text(line(10, "b"))
        path.write_text(line(11, "c") + line(12, "d"))
        while rows := files.new_rows(most_bytes=100):
            found += [row["message"] for row in rows]
    assert found == [*(f"a{number}" for number in range(9)), "b", "c", "d"]


def test_a_reader_that_must_not_stay_long_takes_a_part_at_a_time_and_misses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    path.write_text(line(1, "a") + line(2, "b") + line(3, "c"))
    with LogFiles(tmp_path) as files:
        first = [row["message"] for row in files.new_rows(most_bytes=100)]
        path.rename(tmp_path / "worker-0.log.1")
        path.write_text(line(4, "d"))
        rest: list[str] = []
        while rows := files.new_rows(most_bytes=100):
            rest += [row["message"] for row in rows]
    assert 0 < len(first) < 3
    assert first + rest == ["a", "b", "c", "d"]


def test_older_files_are_read_first_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "worker-0.log").write_text(line(3, "c"))
    (tmp_path / "worker-0.log.1").write_text(line(2, "b"))
    (tmp_path / "worker-0.log.2").write_text(line(1, "a"))
    with LogFiles(tmp_path) as files:
        assert messages(files) == ["c"]
    with LogFiles(tmp_path, rotated=True) as files:
        assert messages(files) == ["a", "b", "c"]


def test_what_is_no_row_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "worker-0.log").write_bytes(b"\xff\n[1]\nSegmentation fault\n{}\n" + line(1, "a").encode())
    with LogFiles(tmp_path) as files:
        assert messages(files) == ["a"]


def test_a_moment_before_all_clocks_is_their_beginning() -> None:
    assert moment(1e15)[:10] == "1970-01-01"


def test_levels_are_ordered_by_gravity() -> None:
    assert is_at_least({"level": "ERROR"}, "WARNING")
    assert not is_at_least({"level": "INFO"}, "WARNING")
    assert is_at_least({"level": "AUDIT"}, "WARNING")


def test_rows_since_a_moment_are_found_in_long_files_without_reading_them(tmp_path: Path) -> None:
    def at(number: int) -> str:
        return f"2026-11-20T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.000Z"

    rows = [json.dumps({"time": at(n), "level": "INFO", "message": f"{n} {'x' * 500}"}) for n in range(4000)]
    (tmp_path / "worker-0.log.1").write_text("\n".join(rows[:1900]) + "\ntorn\n")
    (tmp_path / "worker-0.log").write_text("\n".join(rows[1900:]) + "\n")
    for since in (0, 1, 77, 1899, 1900, 1901, 2777, 3999, 5000):
        with LogFiles(tmp_path, rotated=True, since=at(since)) as files:
            found = [int(row["message"].split()[0]) for row in files.new_rows()]
        assert found[-max(0, 4000 - since) :] == [*range(since, 4000)] or since >= 4000
        # Of each file some rows before, at most.
        assert len(found) <= max(0, 4000 - since) + 2 * 250


def test_a_page_that_follows_sees_rows_of_a_file_that_was_rotated_meanwhile(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("words")
    log = folder.logs / "worker-0.log"
    log.write_text(line(1, "a"))
    after = logs(folder, {})["next"]
    with log.open("a") as file:
        file.write(line(2, "b"))
    log.rename(folder.logs / "worker-0.log.1")
    log.write_text(line(3, "c"))
    assert [row["message"] for row in logs(folder, {"after": after})["rows"]] == ["a", "b", "c"]


def test_each_row_of_many_is_read_in_order_with_a_piece_of_each_file_in_memory(tmp_path: Path) -> None:
    names = [f"worker-{worker}.log{age}" for worker in range(2) for age in (".2", ".1", "")]
    for number, name in enumerate(names):
        worker, part = divmod(number, 3)
        rows = ({"time": f"{2 * (1000 * part + row) + worker:06}", "message": "x" * 2000} for row in range(1000))
        (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    tracemalloc.start()
    with LogFiles(tmp_path, rotated=True) as files:
        times = [row["time"] for row in files.each_row()]
        peak = tracemalloc.get_traced_memory()[1]
        assert not list(files.each_row())
    tracemalloc.stop()
    assert times == [f"{number:06}" for number in range(6000)]
    assert peak < 4 << 20, "of 12 MB"


def test_files_that_are_renamed_while_rows_are_shown_are_read_once(tmp_path: Path) -> None:
    for number, name in enumerate(("worker-0.log.1", "worker-0.log")):
        (tmp_path / name).write_text(json.dumps({"time": str(number), "message": number}) + "\n")
    with LogFiles(tmp_path, rotated=True) as files:
        rows = files.each_row()
        found = [next(rows)["message"]]
        (tmp_path / "worker-0.log.1").rename(tmp_path / "worker-0.log.2")
        (tmp_path / "worker-0.log").rename(tmp_path / "worker-0.log.1")
        (tmp_path / "worker-0.log").write_text(json.dumps({"time": "2", "message": 2}) + "\n")
        assert found + [row["message"] for row in rows] == [0, 1, 2]
