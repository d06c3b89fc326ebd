"""Every example of topologies/, run for real as a user would run it."""

from __future__ import annotations

import csv
import gzip
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "topologies"
TEXT = "the river and the mill\nthe mill and a river of tuples\n"


class Ran(NamedTuple):
    code: int
    printed: list[str]
    summary: dict[str, Any]


def run(example: str, **parameters: object) -> Ran:
    """Run an example; its output comes on stderr behind the two lines of the start, beside the summary on stdout."""
    given = [word for name, value in parameters.items() for word in ("-p", f"{name}={value}")]
    command = [sys.executable, "-m", "topo_cli", "run", str(EXAMPLES / f"{example}.py"), "--json", "-q", *given]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout, done.stderr
    start, code, *printed = done.stderr.splitlines()
    assert start.endswith(" starts from the beginning") and code.startswith("code: a copy of "), done.stderr
    return Ran(done.returncode, printed, json.loads(done.stdout))


def test_word_count_counts_the_words_of_a_file_and_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(TEXT)
    (tmp_path / "two.bin").write_bytes(b"caf\xe9 mill\n")
    words = Counter([*TEXT.split(), "caf", "mill"])
    ran = run("word_count", path=tmp_path, counts=2, top=3)
    assert ran.code == 0
    assert ran.printed[0] == "The 3 most frequent words:"
    counted = {word: int(count) for count, word in (line.split() for line in ran.printed[1:])}
    assert counted == {"the": words["the"], "mill": words["mill"], "river": words["river"]}
    assert ran.summary["totals"]["acked"] == 3


def test_word_count_without_a_path_reads_the_standard_library_only(tmp_path: Path) -> None:
    ran = run("word_count")
    executed = {row["component"]: row["counters"]["executed"] for row in ran.summary["components"]}
    assert ran.code == 0
    assert "self" in " ".join(ran.printed)
    assert ran.summary["totals"]["acked"] == ran.summary["totals"]["emitted"] == executed["split"] > 50_000
    assert executed["count"] > executed["split"]
    assert ran.summary["restarts"] == ran.summary["totals"]["failed"] == 0


def test_top_n_prints_the_leaders_of_the_window_at_each_tick() -> None:
    ran = run("top_n", rate=500, seconds=3, window=2, top=3)
    assert ran.code == 0
    assert ran.summary["totals"]["acked"] == 1500
    rankings = [re.findall(r"([a-z]+) (\d+)", line) for line in ran.printed]
    assert len(rankings) >= 3
    for ranking in rankings:
        counts = [int(count) for _, count in ranking]
        assert len(counts) <= 3 and counts == sorted(counts, reverse=True)
        assert sum(counts) <= 1500


def test_diamond_joins_every_order_once() -> None:
    ran = run("diamond", orders=500)
    report = {line.partition(":")[0]: int(line.split()[1]) for line in ran.printed}
    assert ran.code == 0
    assert report == {"accepted": 310, "rejected": 190}
    assert ran.summary["totals"]["acked"] == 500


def test_enrichment_retries_what_can_be_mended_and_gives_up_what_cannot() -> None:
    ran = run("enrichment", visitors=100, unknown=3)
    totals = ran.summary["totals"]
    assert ran.code == 1
    assert (totals["acked"], totals["dead_lettered"]) == (97, 3)
    # Ten need a second attempt, three fail three times; a visitor that is unknown is never cold.
    assert (totals["failed"], totals["replayed"]) == (10 + 9, 10 + 6)
    countries = [line.split() for line in ran.printed if re.fullmatch(r" +\d+  [A-Z][a-z]+", line)]
    assert sum(int(count) for count, _ in countries) == 97


def test_bulk_insert_needs_few_transactions_and_gives_up_the_bad_rows_alone(tmp_path: Path) -> None:
    ran = run("bulk_insert", path=tmp_path / "orders.db", orders=2_000, bad=1)
    totals = ran.summary["totals"]
    assert ran.code == 1
    assert (totals["acked"], totals["dead_lettered"]) == (1_999, 1)
    assert sum(int(line.split()[1].replace(",", "")) for line in ran.printed if " orders " in line) == 1_999


def test_access_log_counts_what_it_was_not_asked_to_fail_and_alerts_once_each_way() -> None:
    ran = run("access_log", lines=20_000)
    assert ran.code == 0
    alerts = [line for line in ran.printed if "server errors" in line]
    assert [alert.partition(":")[0] for alert in alerts] == ["too many server errors", "server errors are few again"]
    user = {row["component"]: row["user"] for row in ran.summary["components"]}
    assert user["parse"]["counters"] == {"malformed_lines": 21}
    assert user["parse"]["histograms"]["response_bytes"]["count"] == 20_000 - 21
    assert user["watch"]["counters"]["server_errors"] > 1_000
    assert user["pages"]["gauges"] == {"different_pages": 10.0}


def test_access_log_reads_a_log_that_exists(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text('1.2.3.4 - - [01/Mar/2026:00:00:01 +0000] "GET /a?x=1 HTTP/1.1" 200 10\n' * 3 + "nonsense\n")
    ran = run("access_log", path=log)
    assert ran.code == 0
    assert [line.split() for line in ran.printed] == [["3", "30", "B", "/a"]]


def test_file_orders_writes_the_revenue_of_each_shop_once(tmp_path: Path) -> None:
    ran = run("file_orders", folder=tmp_path, orders=3000)
    assert ran.code == 0
    orders = [
        json.loads(line) for file in (tmp_path / "incoming").iterdir() for line in gzip.decompress(file.read_bytes()).splitlines()
    ]
    expected = Counter[str]()
    for order in orders:
        expected[order["shop"]] += order["cents"]
    written = Counter[str]()
    for file in (tmp_path / "revenue").glob("shop=*/*.csv"):
        written[file.parent.name.removeprefix("shop=")] += sum(int(row["cents"]) for row in csv.DictReader(file.open()))
    assert len(orders) == 3000 and written == expected
