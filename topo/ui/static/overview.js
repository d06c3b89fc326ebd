// The overview of a topology: key figures, where the time goes, graph, components, the past.
import { useRef } from "preact/hooks";
import { Charts, Spark, usePast } from "./charts.js";
import { count, percent, rate, seconds } from "./format.js";
import { Graph } from "./graph.js";
import { html } from "./html.js";
import { Bar, Choice, Link, Table, shownOf } from "./parts.js";
import { path } from "./store.js";

function Figures({ shown, name }) {
  const { data } = usePast(name, ["total"], 300, 5), past = data?.series.total || {};
  const p99 = Math.max(...shown.components.map((row) => row.complete_s?.p99 ?? -1));
  const figures = [["emitted a second", rate(shown.totals.emitted_per_s), past.emitted], ["acked a second", rate(shown.totals.acked_per_s), past.acked], ["pending messages", count(shown.totals.pending), past.pending],
    ["p99 of a message", p99 < 0 ? "–" : seconds(p99)], ["failed", count(shown.totals.failed)], ["dead letters", count(shown.dead_letters)], ["restarts", count(shown.restarts)]];
  return html`<dl class="figures">${figures.map(([title, value, values]) => html`<div><dt>${title}</dt><dd>${value}${values ? html`<${Spark} values=${values.slice(-100)} label=${`${title}, the last minutes`} />` : null}</dd></div>`)}</dl>`;
}

/** Wait in front of each bolt, and its mean execution, one after the other. */
function TimeBar({ rows }) {
  const parts = rows.filter((row) => row.kind === "bolt").flatMap((row) => [["wait", row.component, row.wait_s], ["work", row.component, row.execute_s?.mean]]).filter(([, , value]) => value > 0);
  const total = parts.reduce((sum, [, , value]) => sum + value, 0);
  if (!(total > 0)) return null;
  const words = (kind, name, value) => `${kind === "wait" ? `wait for ${name}` : name} ${seconds(value)}`;
  const longest = [...parts].sort((one, two) => two[2] - one[2]).slice(0, 5);
  return html`<section class="card"><h2>Where the time goes</h2><div class="timebar" aria-hidden="true">${parts.map(([kind, name, value]) => html`<span class=${kind} title=${words(kind, name, value)} style=${{ flexGrow: value / total }}>${value / total > 0.12 ? words(kind, name, value) : ""}</span>`)}</div>
    <p class="quiet">${longest.map((one) => words(...one)).join(" · ")}</p></section>`;
}

const MOST_CHARTED = 12, CHOSEN_MS = 30000;

/** The past of the busiest components. They are chosen twice a minute, in all tabs from the same figures: those of others would be
    loaded each second, and by the server for each tab. */
function Past({ name, rows, at }) {
  const chosen = useRef({ turn: 0, names: [] }), turn = Math.floor(at / CHOSEN_MS), names = rows.map((row) => row.component), some = names.length > MOST_CHARTED;
  if (some && (turn !== chosen.current.turn || !chosen.current.names.every((one) => names.includes(one)))) {
    const busiest = [...rows].sort((one, two) => (two.capacity || 0) - (one.capacity || 0)).slice(0, MOST_CHARTED);
    chosen.current = { turn, names: busiest.map((row) => row.component).sort() };
  }
  return html`<${Charts} name=${name} components=${some ? chosen.current.names : names} title=${some ? `The past of the ${MOST_CHARTED} busiest` : "The past"} />`;
}

export function Components({ name, rows }) {
  return html`<${Table} label="Components" rows=${rows} columns=${[
    ["component", (row) => html`<${Link} to=${path(name, "c", row.component)}>${row.component}<//>`], ["tasks", (row) => count(row.parallelism), true], ["in/s", (row) => rate(row.kind === "spout" ? null : row.in_per_s), true],
    ["out/s", (row) => rate(row.out_per_s), true], ["capacity", (row) => html`<span class=${row.capacity >= 0.8 ? "much" : ""}>${percent(row.capacity)}</span>`, true], ["busy, held back", (row) => html`<${Bar} busy=${row.busy} held=${row.backpressured} />`],
    ["in front", (row) => count(row.in_front), true], ["wait", (row) => seconds(row.wait_s), true], ["p50", (row) => seconds((row.execute_s || row.complete_s)?.p50), true], ["p99", (row) => seconds((row.execute_s || row.complete_s)?.p99), true],
    ["failed", (row) => count(row.counters.failed), true], ["errors", (row) => count(row.counters.errors), true]]} />`;
}

/** A topology whose master does not run: how it ended. */
function Ended({ live }) {
  const end = live.status, rows = (end?.components || []).filter((row) => row.kind !== "acker");
  if (!end) return html`<p class="empty">Its master does not run, and left no summary.</p>`;
  const totals = Object.entries(end.totals).filter(([, value]) => typeof value === "number" && value);
  return html`<dl class="figures">${totals.filter(([title]) => !title.endsWith("_per_s")).map(([title, value]) => html`<div><dt>${title.replaceAll("_", " ")}</dt><dd>${count(value)}</dd></div>`)}</dl>
    <h2>Components</h2><${Table} label="Components" rows=${rows} columns=${[["component", (row) => row.component], ["tasks", (row) => count(row.parallelism), true], ...["executed", "emitted", "acked", "failed", "errors"].map((one) => [one, (row) => count(row.counters[one]), true])]} />
    <${Past} name=${live.topology} rows=${rows} at=${live.at_ms} />`;
}

function Overview({ name, live }) {
  if (!live) return html`<p class="empty">Waiting for figures.</p>`;
  const shown = live.figures;
  if (!shown || (live.status && !live.overview)) return html`<${Ended} live=${live} />`;
  const rows = shownOf(live), hot = new Map((live.findings || []).filter((one) => one.severity !== "note").reverse().map((one) => [one.component, one.severity]));
  return html`<${Figures} shown=${shown} name=${name} /><${Graph} name=${name} components=${rows} edges=${shown.edges} hot=${hot} /><${TimeBar} rows=${rows} />
    <div class="title"><h2>Components</h2><${Choice} name="window" label="Figures of" options=${[["10s", "10 s"], ["1m", "1 min"], ["10m", "10 min"], ["all", "all"]]} /></div><${Components} name=${name} rows=${rows} />
    <${Past} name=${name} rows=${rows} at=${live.at_ms} />`;
}

export default { name: "overview", title: "overview", View: Overview };
