// All topologies.
import { Spark, usePast } from "./charts.js";
import { count, rate, seconds, time } from "./format.js";
import { html } from "./html.js";
import { Command, Field, Link, Table, Word } from "./parts.js";
import { path, useStore } from "./store.js";

const nameOf = (row) => row.topology || row.name;

function Past({ name }) {
  const { data } = usePast(name, ["total"], 300, 15);
  return html`<${Spark} values=${data?.series.total?.acked?.slice(-100)} label="acked a second, the last minutes" />`;
}

export function List() {
  const { list, place, connection } = useStore();
  if (list === null) return html`<h1>Topologies</h1><p class="empty">Waiting for the server.</p>`;
  const wanted = (place.query.text || "").toLowerCase();
  const rows = list.topologies.filter((row) => `${nameOf(row)} ${row.status}`.toLowerCase().includes(wanted));
  return html`<div class="title"><h1>Topologies</h1><${Field} name="text" label="Filter" placeholder="name or status" /></div>${connection === "live" ? null : html`<b class="asof">as of ${time(list.at_ms)}</b>`}
    <div class=${connection === "live" ? "" : "stale"}><${Table} label="Topologies" rows=${rows} empty="No topology yet: topo submit FILE starts one." columns=${[
    ["name", (row) => html`<${Link} class="strong" to=${path(nameOf(row))}>${nameOf(row)}<//>`],
    ["status", (row) => html`<${Word} word=${row.status} />${row.reason ? html`<br /><span class="quiet">${row.reason}</span>` : null}`], ["where", (row) => row.place], ["up", (row) => seconds(row.uptime_s), true], ["tasks", (row) => count(row.tasks), true],
    ["in/s", (row) => rate(row.in_per_s), true], ["acked/s", (row) => html`<span class="with-spark">${["RUNNING", "DEGRADED", "STALLED"].includes(row.status) ? html`<${Past} name=${nameOf(row)} />` : null} ${rate(row.acked_per_s)}</span>`, true], ["p99", (row) => seconds(row.p99_s), true], ["lag", (row) => seconds(row.lag_s), true],
    ["pending", (row) => count(row.pending), true], ["findings", (row) => (row.findings?.length ? html`<span class=${`dot ${row.findings[0].severity}`} title=${row.findings[0].sentence}>${row.findings.length}</span>` : "–"), true]]} /></div><${Command}>topo list<//>`;
}
