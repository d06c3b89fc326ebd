// Checkpoints: a strip of the last ones, and the time of each task in one of them.
import { useRef } from "preact/hooks";
import { bytes, count, seconds, time } from "./format.js";
import { html } from "./html.js";
import { Command, Link, Problem, Table, mayAct, propose, save, where } from "./parts.js";
import { path, setQuery, useLoad, useStore } from "./store.js";

const STRIP = 60;
const PARTS = [["alignment_ms", "aligned"], ["pause_ms", "paused"], ["duration_ms", "written"]];

/** Those on disk, and those that only the master still knows, by number. */
function known(data) {
  const rows = new Map((data?.status?.latest || []).map((row) => [row.checkpoint, row]));
  for (const row of data?.checkpoints || []) rows.set(row.checkpoint, { ...rows.get(row.checkpoint), ...row });
  return [...rows.values()].sort((one, two) => one.checkpoint - two.checkpoint);
}

function Strip({ rows, chosen }) {
  const most = Math.max(...rows.map((row) => row.duration_s || 0), 0.001);
  return html`<div class="strip" role="group" aria-label="The last checkpoints; the height is the time it took">${rows.slice(-STRIP).map((row) => html`<button key=${row.checkpoint} class=${row.state} aria-pressed=${row.checkpoint === chosen} aria-label=${`checkpoint ${row.checkpoint}, ${row.state}, ${seconds(row.duration_s)}`} title=${`${row.checkpoint}: ${row.state}, ${seconds(row.duration_s)}`}
    onClick=${() => setQuery({ n: String(row.checkpoint) })}><i style=${{ height: `${Math.max(6, (100 * (row.duration_s || 0)) / most)}%` }}></i></button>`)}</div>`;
}

function Gantt({ name, number }) {
  const { data: found, error } = useLoad(where(name, "checkpoints", String(number)), 0), before = useRef(null);
  // Those of the one before stay until those of the next are here.
  if (found) before.current = found;
  const data = before.current;
  if (error) return html`<p class="empty">Times by task are known while the topology runs. ${error}</p>`;
  if (!data) return null;
  if (!data.parts.length) return html`<p class="empty">The master keeps the times of tasks for the last 20 checkpoints.</p>`;
  const most = Math.max(...data.parts.map((row) => row.alignment_ms + row.pause_ms + row.duration_ms), 0.001);
  return html`<p class="quiet legend">From the first barrier at a task: ${PARTS.map(([, title]) => html`<span class=${`key ${title}`}></span> ${title} `)}</p>
    <ul class="gantt">${data.parts.slice(0, 60).map((row) => html`<li><span class="who"><${Link} to=${path(name, "c", row.component)}>${row.component}[${row.index}]<//></span><span class="track" role="img" aria-label=${PARTS.map(([part, title]) => `${title} ${seconds(row[part] / 1000)}`).join(", ")}>${PARTS.map(([part, title]) => html`<i class=${title} style=${{ width: `${(100 * row[part]) / most}%` }}></i>`)}</span>
      <span class="what">${seconds((row.alignment_ms + row.pause_ms + row.duration_ms) / 1000)}, ${bytes(row.bytes)}</span></li>`)}</ul>${data.parts.length > 60 ? html`<p class="quiet">The slowest 60 of ${data.parts.length} tasks.</p>` : null}`;
}

function Checkpoints({ name }) {
  const { data, error } = useLoad(where(name, "checkpoints"), 5), { place, hello } = useStore("place", "hello");
  const rows = known(data), last = [...rows].reverse().find((row) => row.state === "complete" || row.state === "savepoint");
  const chosen = Number(place.query.n) || last?.checkpoint, one = rows.find((row) => row.checkpoint === chosen), status = data?.status;
  if (data && !data.folder) return html`<h2>Checkpoints</h2><p class="empty">${name} takes no checkpoints; run it with -s delivery=exactly_once.</p>`;
  const facts = status ? [["complete", count(status.complete)], ["failed", count(status.failed)], ["aborted", count(status.aborted)], ["restores", count(status.restores)], ["the last", status.age_s === null ? "–" : `${seconds(status.age_s)} ago`]] : [];
  return html`<div class="title"><h2>Checkpoints</h2><span class="row">${mayAct(hello) && status ? html`<button onClick=${() => propose("savepoint", {}, "Stores a savepoint beside the checkpoints; the topology goes on.")}>Savepoint</button>` : null}${data ? html`<button onClick=${() => save(`${name}-checkpoints.json`, data)}>Download</button>` : null}</span></div><${Problem} text=${error} />
    ${data ? html`<dl class="figures small">${facts.map(([title, value]) => html`<div><dt>${title}</dt><dd>${value}</dd></div>`)}</dl>${status?.under_way ? html`<p class="quiet">Checkpoint ${status.under_way.checkpoint} is under way for ${seconds(status.under_way.since_s)}, and waits for ${status.under_way.waiting_for}.</p>` : null}` : null}
    ${rows.length ? html`<section class="card"><${Strip} rows=${rows} chosen=${chosen} />${one ? html`<h3>Checkpoint ${chosen}: ${one.state}${one.duration_s === null ? "" : `, ${seconds(one.duration_s)}`}${one.bytes ? `, ${bytes(one.bytes)}` : ""}</h3>${one.why ? html`<p class="finding problem">${one.why}</p>` : null}<${Gantt} name=${name} number=${chosen} />` : null}</section>` : data ? html`<p class="empty">No checkpoint is complete yet.</p>` : null}
    ${data?.checkpoints.length ? html`<h3>On disk</h3><${Table} label="Checkpoints" rows=${[...data.checkpoints].reverse()} picked=${(row) => row.checkpoint === chosen} columns=${[["checkpoint", (row) => count(row.checkpoint), true], ["state", (row) => html`<${"span"} class=${`word ${row.state}`}>${row.state}<//>`], ["stored", (row) => time(row.created_ms)], ["size", (row) => bytes(row.bytes), true], ["took", (row) => seconds(row.duration_s), true], ["aligned", (row) => seconds(row.alignment_s), true], ["paused", (row) => seconds(row.pause_s), true], ["parts", (row) => count(row.parts), true], ["why", (row) => row.why || "–"]]} /><p class="quiet">In <code>${data.folder}</code></p>` : null}<${Command}>topo checkpoints ${name}<//>`;
}

export default { name: "checkpoints", title: "checkpoints", isStill: true, View: Checkpoints };
