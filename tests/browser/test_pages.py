"""Every page in a real Chromium: nothing on the console, text stays text, no violation of axe-core, and a fit at 420 pixels."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.submissions import ended_summary

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.xdist_group("browser"), pytest.mark.timeout(600)]

Open = Callable[..., Any]
PAGES = {
    "": ("region", "Topologies"),
    "t/readings": ("region", "Components"),
    "t/readings/c/parse": ("heading", "Tasks, the busiest first"),
    "t/readings/time": ("region", "Event time by component"),
    "t/exact/checkpoints": ("heading", "On disk"),
    "t/readings/errors": ("heading", "ValueError"),
    "t/readings/dead-letters": ("region", "Dead letters"),
    "t/readings/logs": ("log", "Log lines"),
    "t/readings/tap?component=parse": ("region", "Tuples"),
    "t/readings/trace?rate=5&for=600": ("region", "Where the time went"),
    "t/readings/profile?component=parse&seconds=120": ("region", "Functions"),
    "t/readings/workers": ("region", "Workers"),
    "t/readings/settings": ("region", "Settings"),
}
"""By address, the part that appears with the figures of the page."""
CHARTED = {"t/readings", "t/readings/c/parse", "t/readings/time"}
VIOLATIONS = """async () => (await axe.run()).violations.map(
    (one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`)"""


@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_page_is_accessible_and_fits(open_tab: Open, axe: str, theme: str, width: int) -> None:
    tab = open_tab(width=width, theme=theme)
    tab.evaluate(axe)
    found: dict[str, list[str]] = {}
    for page, (role, name) in PAGES.items():
        tab.evaluate("to => { history.pushState(null, '', to); dispatchEvent(new PopStateEvent('popstate')) }", f"/{page}")
        if "?" in page:
            tab.get_by_role("button", name="Start").click()
        tab.get_by_role(role, name=name).first.wait_for()
        if page in CHARTED:
            tab.locator("figure").first.wait_for()
        wrong = tab.evaluate(VIOLATIONS)
        if tab.evaluate("document.documentElement.scrollWidth") > width:
            wrong.append("wider than the window")
        if wrong:
            found[page] = wrong
    assert found == {}


def test_dialogs_are_accessible_in_both_themes(open_tab: Open, axe: str) -> None:
    for theme in ("light", "dark"):
        tab = open_tab(theme=theme)
        tab.get_by_role("region", name="Components").wait_for()
        tab.evaluate(axe)
        for key, name in (("?", "Keyboard shortcuts"), ("/", "Search")):
            tab.keyboard.press(key)
            tab.get_by_role("dialog", name=name).wait_for()
            assert tab.evaluate(VIOLATIONS) == [], name
            tab.keyboard.press("Escape")


def test_a_script_in_an_error_stays_text(open_tab: Open) -> None:
    tab = open_tab("t/readings/errors")
    tab.get_by_text("<img src=x onerror=alert(1)>").first.wait_for()
    tab.get_by_text("Traceback of the last").click()
    tab.locator("pre", has_text="ValueError: <img").wait_for()
    assert tab.locator("img").count() == 0


def test_event_time_names_who_is_waited_for_and_the_late_inputs(open_tab: Open) -> None:
    tab = open_tab("t/readings/time")
    tab.get_by_text("next waits for parse[").first.wait_for()
    tab.locator("tr", has_text="per-key").locator("td .much").wait_for()
    tab.get_by_label("Tasks of").select_option("parse")
    tab.get_by_text("parse[1]", exact=True).wait_for()


def test_event_time_of_each_edge_shows_which_input_is_behind(open_tab: Open) -> None:
    tab = open_tab("t/readings/time")
    tab.locator("li", has_text="behind → meet").get_by_text(", holds meet back").wait_for()
    places = (
        tab.locator("li", has_text="→ meet").locator("b").evaluate_all("(all) => all.map((one) => parseFloat(one.style.left))")
    )
    ahead, behind = places
    # The one is 30 s older than the other.
    assert 0 < behind < 40 < ahead <= 100
    assert "back" not in str(tab.locator("li", has_text="parse → meet").text_content())
    assert "back" not in str(tab.locator("li", has_text="source → parse").text_content())


def test_a_checkpoint_shows_the_time_of_each_task(open_tab: Open) -> None:
    tab = open_tab("t/exact/checkpoints")
    tab.get_by_role("button", name="complete, ").last.click()
    tab.get_by_role("link", name="per-key[0]").wait_for()
    assert "n=" in tab.url


def test_the_search_leads_to_a_component_and_keys_to_pages(open_tab: Open) -> None:
    tab = open_tab()
    tab.get_by_role("region", name="Components").wait_for()
    tab.keyboard.press("/")
    tab.get_by_role("combobox", name="Search").fill("pars")
    tab.get_by_role("option", name="parse").wait_for()
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/c/parse")
    tab.get_by_role("dialog", name="Search").wait_for(state="hidden")
    tab.keyboard.press("o")
    tab.wait_for_url("**/t/readings")
    tab.keyboard.press("]")
    tab.wait_for_url("**/t/readings/time")


def test_the_address_keeps_filters_and_ranges(open_tab: Open) -> None:
    tab = open_tab("t/readings/logs?level=warning&text=nothing-like-that")
    tab.get_by_text("No line is like that.").wait_for()
    assert tab.get_by_label("Level").first.input_value() == "warning"
    tab.get_by_label("Text").fill("")
    tab.get_by_label("Level").first.select_option("info")
    tab.get_by_text("worker 0 starts").first.wait_for()
    assert tab.url.endswith("/logs")


def test_a_problem_is_gone_with_the_page_that_had_it(open_tab: Open) -> None:
    tab = open_tab("t/nothing")
    problem = tab.get_by_text("no topology is called 'nothing'")
    problem.wait_for()
    tab.locator("header a.home").click()
    tab.get_by_role("link", name="readings").wait_for()
    problem.wait_for(state="detached", timeout=5000)


def test_the_past_of_an_ended_topology_is_that_of_its_busiest_components(open_tab: Open, served: Any) -> None:
    folder = served.home / "topologies" / "many"
    folder.mkdir(0o700)
    nothing = {"counters": {}, "levels": {}, "latencies_s": {}, "event_time": None}
    nothing["user"] = {"counters": {}, "gauges": {}, "histograms": {}}
    rows = [{"component": f"step{n}", "kind": "bolt", "parallelism": 1, "capacity": n / 20, **nothing} for n in range(20)]
    (folder / "summary.json").write_text(json.dumps(ended_summary("many", components=rows)))
    tab = open_tab("t/many")
    tab.get_by_text("The past of the 12 busiest").wait_for(timeout=10_000)
    tab.close()
    shutil.rmtree(folder)


FOLD = """async () => {
    const { fold } = await import(document.querySelector('script[src]').src.replace('main.js', 'fold.js'));
    const rows = [], edges = [];
    for (let team = 0; team < 10; team += 1) for (let one = 0; one < 12; one += 1) {
        const source = `team${team}-step${one}`, target = `team${(team + 1) % 10}-step${one}`;
        rows.push({ component: source, kind: 'bolt', parallelism: 1, capacity: one / 12 });
        edges.push({ source, target, per_s: 5, in_front: 1, full: 0 });
    }
    const all = fold(rows, edges, '', ''), open = fold(rows, edges, 'team3', ''), near = fold(rows, edges, '', 'team3-step1');
    const figures = [all.rows.length, all.edges.length, all.edges[0].per_s, all.rows[0].capacity, open.rows.length];
    return [...figures, near.rows.map((row) => row.component)];
}"""


def test_many_components_are_folded_by_prefix_or_to_a_neighbourhood(open_tab: Open) -> None:
    *figures, near = open_tab().evaluate(FOLD)
    assert figures == [10, 10, 60, 11 / 12, 21]
    assert sorted(near) == [f"team{team}-step1" for team in (1, 2, 3, 4, 5)]


STEPS = """async () => {
    const { steps } = await import(document.querySelector('script[src]').src.replace('main.js', 'errors.js'));
    return [[[5, 1], [6, 1], [8, 2], [12, 4], [20, 8], [36, 16], [53, 17]], [[7, 3]], [[7, 3], [7, 4]]].map(steps);
}"""


def test_errors_that_are_reported_less_and_less_often_are_shown_as_evenly_as_they_came(open_tab: Open) -> None:
    even, *at_once = open_tab().evaluate(STEPS)
    assert even == pytest.approx([1] * 48, abs=0.1) and sum(even) == pytest.approx(49)
    assert at_once == [[3, *[0] * 47], [7, *[0] * 47]]


DOWN_FROM_THE_EDGE = """() => {
    const over = document.querySelector('.charts .u-over'), canvas = document.querySelector('.charts canvas').getContext('2d');
    const place = [over.offsetLeft, over.offsetTop, over.offsetWidth, over.offsetHeight], [, , width, height] = place;
    const pixels = canvas.getImageData(...place).data;
    const runs = Array.from({ length: width }, (_, x) => {
        let run = 0;
        while (run < height && pixels[4 * (run * width + x) + 3] > 200) run += 1;
        return run;
    });
    return Math.max(...runs.filter((run) => run < height)) / height;
}"""
"""The longest line from the upper edge of a chart down that does not reach the lower one, as a share of its height."""


def test_checkpoints_are_bars_above_the_lines_of_the_charts(open_tab: Open) -> None:
    tab = open_tab("t/exact")
    tab.get_by_text("Bars at the upper edge are checkpoints; their length is the time each took: the slowest ").wait_for()
    tab.locator(".charts canvas").first.scroll_into_view_if_needed()
    loads_of_points(tab, 1)
    assert 0.06 < tab.evaluate(DOWN_FROM_THE_EDGE) < 0.1


HEAT = """async () => {
    const { heatOf } = await import(document.querySelector('script[src]').src.replace('main.js', 'heat.js'));
    const of = (counted) => heatOf({ first_ms: 60000, step_s: 10, length: 3, series: { 'latency/parse': counted } }, 'parse');
    const counted = { '2^-10': [1, 0, null], '2^-7': [3, 0, null], '2^-6': [0, 0, 5], '2^0': [0, 0, 0] };
    return [of(undefined), of({ '2^-9': [0, 0, 0] }), of(counted)];
}"""


def test_shares_of_a_heat_map_are_those_of_the_messages_of_each_moment(open_tab: Open) -> None:
    nothing, no_messages, heat = open_tab().evaluate(HEAT)
    assert (nothing, no_messages) == (None, None)
    assert {row["power"]: row["shares"] for row in heat["rows"]} == {-6: [0, 0, 1], -7: [0.75, 0, 0], -10: [0.25, 0, 0]}
    assert (heat["messages"], heat["range"], heat["first"], heat["step"]) == ([4, 0, 5], [-11, -6], 60, 10)


COLOURED = """() => {
    const canvas = document.querySelector('.heat canvas');
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    const probe = document.createElement('i');
    document.body.append(probe);
    probe.style.color = 'var(--accent)';
    const wanted = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
    const is = (at) => pixels[at + 3] > 30 && wanted.every((one, index) => Math.abs(one - pixels[at + index]) < 6);
    let found = 0;
    for (let at = 0; at < pixels.length; at += 4) found += is(at);
    return found;
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_latencies_over_time_are_coloured_cells_and_a_table_for_the_keyboard(open_tab: Open, axe: str, theme: str) -> None:
    tab = open_tab("t/readings/c/parse", width=420, theme=theme)
    tab.get_by_text("execute latency, by share of messages").scroll_into_view_if_needed()
    tab.get_by_text(" of the messages of a moment. ").wait_for()
    assert tab.evaluate(COLOURED) > 100
    tab.get_by_text("The shares as a table").focus()
    tab.keyboard.press("Enter")
    table = tab.get_by_role("region", name="Share of messages by latency")
    table.wait_for()
    titles = table.get_by_role("columnheader").all_text_contents()
    assert titles[:2] == ["from", "messages"]
    # `parse` sleeps for 2 ms, and longer where the machine is busy.
    assert {"to 3.9 ms", "to 7.8 ms"} & set(titles)
    row = [float(cell.strip("<% ") or 0) for cell in table.locator("tbody tr").last.locator("td").all_text_contents()[2:]]
    assert sum(row) == pytest.approx(100, abs=len(row))
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.ariaLabel") == "Share of messages by latency"
    tab.evaluate(axe)
    assert tab.evaluate(VIOLATIONS) == []
    assert tab.evaluate("document.documentElement.scrollWidth") == 420


COUNT_DRAWINGS = """() => {
    const all = CanvasRenderingContext2D.prototype, clear = all.clearRect;
    window.drawings = 0;
    all.clearRect = function (...place) { window.drawings += 1; return clear.apply(this, place); };
}"""


def test_a_chart_is_drawn_again_when_its_points_have_come_and_not_with_each_figure(open_tab: Open) -> None:
    tab = open_tab("t/readings")
    tab.locator(".charts canvas").last.scroll_into_view_if_needed()
    loads_of_points(tab, 1)
    tab.evaluate(COUNT_DRAWINGS)
    # Figures come each second, points each three.
    loads_of_points(tab, 3)
    charts = tab.locator(".charts canvas").count()
    assert charts <= tab.evaluate("window.drawings") <= 4 * charts


def test_charts_out_of_sight_are_drawn_when_they_come_into_it_or_are_printed(open_tab: Open) -> None:
    tab = open_tab("t/readings")
    tab.locator(".charts canvas").first.wait_for()
    tab.evaluate(COUNT_DRAWINGS)
    loads_of_points(tab, 2)
    assert tab.evaluate("window.drawings") == 0
    tab.evaluate("() => { dispatchEvent(new Event('beforeprint')) }")
    assert tab.evaluate("window.drawings") == tab.locator(".charts canvas").count()
    tab.evaluate("() => { window.drawings = 0 }")
    tab.locator(".charts canvas").last.scroll_into_view_if_needed()
    tab.wait_for_timeout(500)
    assert tab.evaluate("window.drawings") >= tab.locator(".charts canvas").count()


def loads_of_points(tab: Any, number: int) -> None:
    """Wait until points of the charts have been loaded so often, and drawn."""
    for _ in range(number):
        with tab.expect_response(lambda answer: answer.ok and "/history" in answer.url and "component" in answer.url):
            pass
    tab.wait_for_timeout(300)
