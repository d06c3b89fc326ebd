"""Commands on a terminal: live views, Ctrl-C, colours, narrow windows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.drive import EXAMPLES, Terminal, piped

pytestmark = pytest.mark.integration

ENDLESS = ("-p", "items=1000000", "-p", "pause=0.001", "--workers", "2")


def test_a_run_is_shown_while_it_goes_on_and_its_output_and_summary_stay(flow: Path) -> None:
    with Terminal("run", flow, "-p", "items=100", "-p", "pause=0.02") as terminal:
        terminal.wait_for("RUNNING")
        terminal.wait_for("value 198")
        assert terminal.wait() == 0
    assert "component  tasks" in terminal.text
    after = terminal.text.rpartition("value 198")[2]
    assert "flow ended after" in after and "acked           100" in after


def test_ctrl_c_lets_what_is_in_flight_finish(flow: Path) -> None:
    with Terminal("run", flow, *ENDLESS) as terminal:
        terminal.wait_for("value 20")
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert "drained; nothing was left in flight" in terminal.text
    assert "topo resume flow" in terminal.text
    assert "Traceback" not in terminal.text
    totals = json.loads(piped("status", "flow", "--json").out)["totals"]
    assert 0 < totals["emitted"] == totals["acked"]


def test_a_second_ctrl_c_ends_it_at_once(flow: Path) -> None:
    with Terminal("run", flow, "-p", "pause=20") as terminal:
        terminal.wait_for("RUNNING")
        terminal.type("\x03")
        terminal.wait_for("DRAINING")
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert "killed by the operator" in terminal.text


def test_errors_of_user_code_reach_the_terminal_once_each() -> None:
    """Promise of the README: Failures are counted and shown: restarts, retries, timeouts, and errors with your file and line."""
    with Terminal("run", EXAMPLES / "enrichment.py", "-p", "visitors=40", "-p", "unknown=2", columns=300) as terminal:
        assert terminal.wait() == 1
    assert terminal.text.count("LookupError: unknown visitor") == 1
    assert terminal.text.count("TimeoutError: no answer about visitor") == 1


def test_a_kill_asks_first_on_a_terminal(flow: Path) -> None:
    piped("submit", flow, "--wait", *ENDLESS)
    with Terminal("kill", "flow") as terminal:
        terminal.wait_for("End topology flow?")
        terminal.type("n\r")
        assert terminal.wait() == 1
    with Terminal("kill", "flow") as terminal:
        terminal.wait_for("End topology flow?")
        terminal.wait_until_it_reads()
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert piped("status", "flow").out.startswith("flow  RUNNING")
    with Terminal("kill", "flow") as terminal:
        terminal.wait_for("End topology flow?")
        terminal.type("y\r")
        assert terminal.wait() == 0
    assert "killed by the operator" in terminal.text


def test_a_narrow_terminal_shows_fewer_columns_and_no_broken_lines(flow: Path) -> None:
    piped("run", flow, "-q")
    with Terminal("status", "flow", columns=40) as narrow:
        assert narrow.wait() == 0
    with Terminal("status", "flow", columns=160) as wide:
        assert wide.wait() == 0
    assert max(map(len, narrow.text.splitlines())) <= 40
    assert "component" in narrow.text and "double" in narrow.text
    assert "execute p50" in wide.text and "execute p50" not in narrow.text


def test_colours_are_for_terminals_and_for_those_who_want_them(flow: Path) -> None:
    piped("run", flow, "-q")
    with Terminal("status", "flow") as terminal:
        assert terminal.wait() == 0
    green = "\x1b[32mFINISHED"
    assert green in terminal.raw
    with Terminal("status", "flow", NO_COLOR="1") as terminal:
        assert terminal.wait() == 0
    assert green not in terminal.raw and "FINISHED" in terminal.text
    with Terminal("status", "flow", "--no-color") as terminal:
        assert terminal.wait() == 0
    assert green not in terminal.raw and "FINISHED" in terminal.text
    assert "\x1b" not in piped("status", "flow").out


def test_a_watched_status_goes_on_until_the_topology_ends(flow: Path) -> None:
    piped("submit", flow, "--wait", "-p", "items=1500", "-p", "pause=0.002")
    with Terminal("status", "flow", "--watch", "--interval", "200ms") as terminal:
        terminal.wait_for("RUNNING")
        assert terminal.wait() == 0
    assert "FINISHED" in terminal.text
