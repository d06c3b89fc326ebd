// The processes of a topology, and what they cost.
import { Spark, usePast } from "./charts.js";
import { bytes, count, percent, seconds } from "./format.js";
import { html } from "./html.js";
import { Command, Problem, Table, Word, mayAct, propose, where } from "./parts.js";
import { useLoad, useStore } from "./store.js";

function Workers({ name, live }) {
  const { data, error } = useLoad(where(name, "workers"), 2), { hello } = useStore("hello"), rows = data?.workers || [];
  const past = usePast(name, rows.map((row) => `worker/${row.worker}`), 300, 5).data?.series || {};
  const spark = (row, series) => past[`worker/${row.worker}`]?.[series]?.slice(-100);
  const columns = [["worker", (row) => row.worker, true], ["state", (row) => html`<${Word} word=${row.state} />`], ["host", (row) => row.host || "–"], ["pid", (row) => row.pid ?? "–", true], ["tasks", (row) => count(row.tasks?.length), true],
    ["processor", (row) => html`<span class="with-spark"><${Spark} values=${spark(row, "cpu")} label="processor, the last minutes" /> ${percent(row.cpu)}</span>`, true], ["waits for a core", (row) => percent(row.starved), true], ["memory", (row) => html`<span class="with-spark"><${Spark} values=${spark(row, "rss")} label="memory, the last minutes" /> ${bytes(row.rss_bytes)}</span>`, true], ["open files", (row) => count(row.open_files), true],
    ["heard", (row) => (row.silent_s === null || row.silent_s === undefined ? "–" : `${seconds(row.silent_s)} ago`), true], ["losses", (row) => count(row.losses), true], ["why, or at work in", (row) => row.lost_why || row.busy_in || "–"]];
  if (mayAct(hello) && live?.running) columns.push([html`<span class="unseen">action</span>`, (row) => html`<button aria-label=${`Replace worker ${row.worker}`} onClick=${() => propose("replace", { worker: row.worker }, `Ends the process of worker ${row.worker} and starts another. Its tasks go on from what is stored; messages under way come again, or are lost with at_most_once. No command does this.`)}>Replace</button>`]);
  return html`<h2>Workers</h2><${Problem} text=${error} />${data ? html`<${Table} label="Workers" rows=${rows} columns=${columns} empty="No worker is known." />` : null}<${Command}>topo status ${name} --tasks<//>`;
}

export default { name: "workers", title: "workers", isStill: true, View: Workers };
