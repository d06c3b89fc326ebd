// One component: its tasks, the hottest first, the edges in and out, its errors, its past. The overview and the search lead here.
import { Charts } from "./charts.js";
import { count, percent, rate, seconds, text } from "./format.js";
import { Heat } from "./heat.js";
import { html } from "./html.js";
import { Bar, Link, Problem, Table, where } from "./parts.js";
import { ErrorCards } from "./errors.js";
import { path, useLoad } from "./store.js";

function Own({ user }) {
  const rows = Object.entries(user || {}).flatMap(([kind, values]) => Object.entries(values).map(([name, value]) => ({ kind, name, value })));
  return rows.length ? html`<h3>Metrics of your code</h3><${Table} label="Metrics of your code" rows=${rows} columns=${[["metric", (row) => row.name], ["kind", (row) => row.kind.replace(/s$/, "")], ["value", (row) => text(row.value), true]]} />` : null;
}

function Component({ name, item }) {
  const { data, error } = useLoad(where(name, "c", item), 2);
  const failed = useLoad(where(name, "errors"), 10).data?.errors.filter((row) => row.component === item) || [];
  const row = data?.component;
  const facts = row ? [["kind", row.kind], ["tasks", row.parallelism], ["in a second", rate(row.kind === "spout" ? null : row.in_per_s)], ["out a second", rate(row.out_per_s)], ["capacity", percent(row.capacity)], ["in front", count(row.in_front)], ["p50", seconds((row.execute_s || row.complete_s)?.p50)], ["p99", seconds((row.execute_s || row.complete_s)?.p99)], ...Object.entries(row.levels).filter(([one]) => one !== "allowance" && one !== "queue_s").map(([title, value]) => [title.replaceAll("_", " "), count(value)])] : [];
  const query = `?component=${encodeURIComponent(item)}`;
  return html`<div class="title"><h2>${item}</h2><span class="row"><${Link} class="button" to=${path(name, "tap") + query}>tap<//><${Link} class="button" to=${path(name, "profile") + query}>profile<//>${row?.kind === "spout" ? html`<${Link} class="button" to=${`${path(name, "trace")}?spout=${encodeURIComponent(item)}`}>trace<//>` : null}<${Link} class="button" to=${path(name, "logs") + query}>logs<//></span></div><${Problem} text=${error} />
    ${data ? html`<dl class="figures small">${facts.map(([title, value]) => html`<div><dt>${title}</dt><dd>${value}</dd></div>`)}</dl>
      ${data.operators?.length ? html`<h3>Operators, in order</h3><ol>${data.operators.map((one) => html`<li>${one}</li>`)}</ol>` : null}
      <h3>Tasks, the busiest first</h3><${Table} label="Tasks" rows=${[...data.tasks].sort((one, two) => two.capacity - one.capacity)} columns=${[["task", (one) => html`${item}[${one.index}]`], ["worker", (one) => html`<${Link} to=${path(name, "workers")}>${one.worker}<//>`, true], ["executed/s", (one) => rate(one.executed_per_s), true], ["emitted/s", (one) => rate(one.emitted_per_s), true],
        ["capacity", (one) => html`<span class=${one.capacity >= 0.8 ? "much" : ""}>${percent(one.capacity)}</span>`, true], ["busy, held back", (one) => html`<${Bar} busy=${one.busy} held=${one.backpressured} />`], ["queue", (one) => count(one.levels.queue), true], ["p99 of all", (one) => seconds((one.latencies_s.execute || one.latencies_s.complete)?.p99), true], ["failed", (one) => count(one.counters.failed), true], ["lag", (one) => seconds(one.event_time?.lag_s), true]]} />
      <h3>Edges</h3><${Table} label="Edges" rows=${data.edges} columns=${[["from", (one) => html`<${Link} to=${path(name, "c", one.source)}>${one.source}<//>`], ["to", (one) => html`<${Link} to=${path(name, "c", one.target)}>${one.target}<//>`], ["streams", (one) => one.streams.join(", ")], ["grouping", (one) => one.groupings.join(", ")], ["a second", (one) => rate(one.per_s), true], ["in front", (one) => count(one.in_front), true], ["full", (one) => percent(one.full), true], ["tuples", (one) => count(one.tuples), true]]} />
      <${Own} user=${row.user} />` : null}
    ${failed.length ? html`<h3>Errors</h3><${ErrorCards} name=${name} rows=${failed} />` : null}
    <${Charts} name=${name} components=${[item]} /><${Heat} name=${name} item=${item} what=${row ? `${row.kind === "spout" ? "complete" : "execute"} latency` : "latency"} />`;
}

export default { name: "component", View: Component };
