// Errors, those of one kind from one line of code together, with the traceback of the last.
import { Spark } from "./charts.js";
import { count, time } from "./format.js";
import { html } from "./html.js";
import { Choice, Command, Field, Link, Problem, where } from "./parts.js";
import { path, useLoad, useStore } from "./store.js";

const tail = (file) => file.split("/").slice(-2).join("/");

const STEPS = 48;

/** How many errors there were in equal steps from the first to the last of these times. A row counts those since the row before. */
export function steps(times) {
  const first = times[0][0], span = Math.max(1, times.at(-1)[0] - first), found = Array(STEPS).fill(0);
  const step = (at) => Math.min(STEPS - 1, Math.floor((STEPS * (at - first)) / span));
  times.forEach(([at, number], index) => {
    const last = step(at), before = index ? Math.min(last, step(times[index - 1][0]) + 1) : last;
    for (let one = before; one <= last; one += 1) found[one] += number / (last - before + 1);
  });
  return found;
}

export function ErrorCards({ name, rows }) {
  return rows.map((row) => html`<article class="card error" key=${`${row.component} ${row.kind} ${row.file} ${row.line} ${row.message}`}><h3><span class="kind">${row.kind}</span> ${row.times.length > 1 ? html`<${Spark} values=${steps(row.times)} label="occurrences from the first to the last" />` : null}<span class="count" title="times">×${count(row.count)}</span></h3>
    <p class="message">${row.message}</p>${row.others.map((text) => html`<p class="quiet">also: ${text}</p>`)}
    <p class="quiet">${row.component ? html`in <${Link} to=${path(name, "c", row.component)}>${row.component}<//>` : "of the topology"}${row.tasks.length ? ` (task ${row.tasks.join(", ")})` : ""}${row.file ? html`, <code title=${row.file}>${tail(row.file)}:${row.line}</code>` : ""} · first ${time(row.first_ms)}, last ${time(row.last_ms)}${" · "}<${Link} to=${`${path(name, "logs")}?level=warning${row.component ? `&component=${encodeURIComponent(row.component)}` : ""}&at=${new Date(row.last_ms - 500).toISOString()}`}>logs of that time<//></p>
    ${row.traceback ? html`<details><summary>Traceback of the last</summary><pre>${row.traceback}</pre></details>` : null}</article>`);
}

function Errors({ name }) {
  const { data, error } = useLoad(where(name, "errors"), 5), { query } = useStore("place").place;
  const all = [...(data?.errors || [])].reverse(), wanted = (query.text || "").toLowerCase();
  const rows = all.filter((row) => (!query.component || row.component === query.component) && `${row.kind} ${row.message} ${row.others.join(" ")} ${row.file}`.toLowerCase().includes(wanted));
  return html`<div class="title"><h2>Errors</h2><span class="row"><${Choice} name="component" label="Component" options=${[["", "all"], ...new Set(all.map((row) => row.component).filter(Boolean))]} /><${Field} name="text" label="Text" placeholder="kind, message or file" /></span></div><${Problem} text=${error} />
    ${data && !rows.length ? html`<p class="empty">${all.length ? "No error is like that." : "No errors."}</p>` : html`<${ErrorCards} name=${name} rows=${rows} />`}<${Command}>topo errors ${name} --traceback<//>`;
}

export default { name: "errors", title: "errors", isStill: true, View: Errors };
