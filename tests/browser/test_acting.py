"""What operators do on the page changes the real topology, after a second click; and figures that stop are marked."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.xdist_group("browser"), pytest.mark.timeout(600)]

Open = Callable[..., Any]


def confirm(tab: Any, command: str, button: str) -> str:
    """Confirm an action once its command is shown, and return its answer."""
    dialog = tab.get_by_role("dialog", name="Confirm")
    dialog.get_by_text(command).wait_for()
    assert tab.evaluate("document.activeElement.textContent") == "Cancel"
    dialog.get_by_role("button", name=button, exact=True).click()
    answer = dialog.locator("pre")
    answer.wait_for()
    text = str(answer.text_content())
    dialog.locator(".first").click()
    return text


def test_an_action_shows_its_command_and_changes_the_topology(open_tab: Open) -> None:
    tab = open_tab(width=420)
    for action, word in (("deactivate", "INACTIVE"), ("activate", "RUNNING")):
        tab.get_by_text("Actions").click()
        tab.get_by_role("button", name=action, exact=True).click()
        confirm(tab, f"topo {action} readings", action)
        tab.locator(".state .word", has_text=word).wait_for()
    tab.get_by_text("events in this time").click()
    tab.get_by_text("deactivate by an operator").wait_for()


def test_a_dead_letter_is_chosen_and_emitted_again(open_tab: Open) -> None:
    tab = open_tab("t/readings/dead-letters")
    label = str(tab.get_by_label("choose dead letter").first.get_attribute("aria-label"))
    tab.get_by_label(label, exact=True).check()
    number = label.rpartition(" ")[2]
    tab.get_by_role("button", name="Replay 1").click()
    assert "1 of 1 dead letters are emitted again" in confirm(tab, f"topo dead-letters replay readings --ids {number}", "replay")
    tab.get_by_label("Replay").select_option("failed")
    tab.get_by_label(label, exact=True).wait_for()


def test_a_tap_shows_tuples_that_meet_its_condition_until_it_is_stopped(open_tab: Open) -> None:
    tab = open_tab("t/readings/tap?component=parse&where=key+%3D%3D+2")
    tab.get_by_role("button", name="Start").click()
    tab.get_by_role("cell", name="parse[").first.wait_for()
    keys = tab.locator("tbody tr td:nth-child(4)").all_text_contents()
    assert set(keys) == {"2"}
    tab.get_by_role("button", name="Stop").click()
    tab.get_by_role("button", name="Start").wait_for()


def test_the_command_of_a_tap_is_one_that_a_shell_takes(open_tab: Open) -> None:
    tab = open_tab("t/readings/tap?component=parse&where=key+!%3D+'a'")
    command = tab.locator(".same code")
    command.wait_for()
    assert shlex.split(command.text_content()) == ["topo", "tap", "readings", "parse", "--where", "key != 'a'"]


def test_a_trace_shows_a_message_tuple_by_tuple_and_its_odd_name_stays_text(open_tab: Open) -> None:
    tab = open_tab("t/readings/trace?spout=odd&rate=20&order=newest", width=420)
    tab.locator("button:enabled", has_text="Start").press("Enter")
    messages = tab.get_by_role("region", name="Messages").get_by_role("button")
    messages.nth(2).wait_for()
    name = str(messages.last.text_content())
    assert name.startswith("odd[0] <img src=x onerror=alert(")
    messages.last.press("Enter")
    tab.locator("button[aria-pressed=true]", has_text=name).wait_for()
    waterfall = tab.get_by_role("region", name="Waterfall")
    waterfall.get_by_role("heading", name=f"{name}: acked after ").wait_for()
    tuples = waterfall.get_by_role("listitem")
    assert [(one.get_attribute("aria-level"), one.get_by_role("link").text_content()) for one in tuples.all()[:-1]] == [
        ("1", "twice[0]"),
        ("2", "end[0]"),
        ("2", "end[0]"),
    ]
    assert "until the verdict " in str(tuples.last.text_content())
    assert all(phase in str(tuples.first.text_content()) for phase in ("on the way ", "in front ", "executing "))
    assert tab.locator("img").count() == 0
    tab.get_by_role("button", name="Stop").click()
    tab.get_by_text("· ended").wait_for()


def test_a_profile_names_the_function_of_the_user(open_tab: Open) -> None:
    tab = open_tab("t/readings/profile?component=parse&seconds=120")
    tab.get_by_role("button", name="Start").click()
    tab.get_by_role("button", name="Parse.execute, ").wait_for()
    assert tab.locator(".flame .others").count() == 0
    tab.get_by_role("button", name="all", exact=True).click()
    tab.locator(".flame .others").first.wait_for()
    stored = stored_by(tab, "Save for speedscope", "readings-parse.speedscope.json")
    names = [frame["name"] for frame in stored["shared"]["frames"]]
    profiles = stored["profiles"]
    for profile in profiles:
        assert profile["name"].startswith("readings parse[") and profile["unit"] == "seconds"
        assert len(profile["samples"]) == len(profile["weights"])
        assert sum(profile["weights"]) == pytest.approx(profile["endValue"])
    frames = {names[frame] for profile in profiles for sample in profile["samples"] for frame in sample}
    assert any(frame.startswith("Parse.execute ") for frame in frames)


def test_tuples_and_traces_are_stored_as_files(open_tab: Open) -> None:
    tab = open_tab("t/readings/tap?component=parse")
    tab.get_by_role("button", name="Start").click()
    rows = stored_by(tab, "Export JSON", "readings-parse-tuples.json")
    assert rows and all(row["fields"] for row in rows)
    tab = open_tab("t/readings/trace?rate=20")
    tab.get_by_role("button", name="Start").click()
    messages = stored_by(tab, "Export JSON", "readings-messages.json")
    assert messages and all(message["outcome"] for message in messages)


def stored_by(tab: Any, button: str, file: str) -> Any:
    """Press a button, and return the data of the file that the browser stores."""
    with tab.expect_download() as caught:
        tab.locator("button:enabled", has_text=button).click()
    assert caught.value.suggested_filename == file
    return json.loads(Path(caught.value.path()).read_text())


def test_a_log_level_is_changed_and_taken_back(open_tab: Open) -> None:
    tab = open_tab("t/readings/logs")
    tab.get_by_role("button", name="Change", exact=True).click()
    tab.get_by_text("root = DEBUG").wait_for()
    tab.get_by_role("button", name="Back").click()
    tab.get_by_text("root = DEBUG").wait_for(state="detached")


def test_a_rebalance_shows_its_command_by_the_numbers_that_are_given(open_tab: Open) -> None:
    tab = open_tab("t/exact")
    tab.get_by_text("Actions").click()
    tab.get_by_role("button", name="rebalance").click()
    tab.get_by_role("dialog").get_by_label("per-key").fill("3")
    tab.get_by_text("topo rebalance exact -e per-key=3").wait_for()
    tab.get_by_role("button", name="Dry run").click()
    tab.get_by_text("per-key: 1 -> 3 tasks").wait_for()
    tab.keyboard.press("Escape")
    tab.get_by_role("dialog", name="Confirm").wait_for(state="hidden")


def test_a_worker_is_replaced(open_tab: Open) -> None:
    tab = open_tab("t/readings/workers")
    row = tab.get_by_role("region", name="Workers").locator("tbody tr")
    before = row.locator("td").nth(3).text_content()
    row.get_by_role("button", name="Replace worker 0").click()
    assert "worker 0 is being replaced" in confirm(tab, "Ends the process of worker 0", "replace")
    pid = "document.querySelector('tbody td:nth-child(4)')?.textContent"
    tab.wait_for_function(f"before => /^[0-9]+$/.test({pid}) && {pid} !== before", arg=before)


def test_a_server_that_stands_still_leaves_figures_as_of_then(open_tab: Open, served: Any) -> None:
    tab = open_tab()
    tab.get_by_role("region", name="Components").wait_for()
    os.kill(served.process.pid, signal.SIGSTOP)
    try:
        tab.get_by_text("as of ").wait_for()
        assert tab.locator(".stale").get_by_role("region", name="Components").is_visible()
    finally:
        os.kill(served.process.pid, signal.SIGCONT)
    tab.get_by_text("as of ").wait_for(state="detached")
