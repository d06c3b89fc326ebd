// Dead letters: by cause, and how to emit chosen ones again.
import { useState } from "preact/hooks";
import { count, text, time } from "./format.js";
import { html } from "./html.js";
import { Choice, Command, Field, Link, Problem, Table, mayAct, propose, save, where } from "./parts.js";
import { path, setQuery, useLoad, useStore } from "./store.js";

const MOST = 1000;
const causeOf = (row) => (row.errors.at(-1) || "no error").split(":")[0].slice(0, 60);
const stateOf = (row) => row.replay?.state || "not replayed";
/** A new run under the name gives the same numbers to others. */
const keyOf = (row) => `${row.id} ${row.at_ms}`;
const values = (row) => (typeof row.values === "string" ? row.values : JSON.stringify(row.values));

function Causes({ rows, chosen }) {
  const counts = new Map();
  for (const row of rows) counts.set(causeOf(row), (counts.get(causeOf(row)) || 0) + 1);
  return html`<div class="row chips" role="group" aria-label="Causes">${[...counts].sort((one, two) => two[1] - one[1]).slice(0, 12).map(([cause, number]) => html`<button aria-pressed=${cause === chosen} onClick=${() => setQuery({ cause: cause === chosen ? null : cause })}>${cause} <b>${count(number)}</b></button>`)}</div>`;
}

function Letters({ name }) {
  const { data, error } = useLoad(`${where(name, "dead-letters")}?number=${MOST}`, 5), { place: { query }, hello } = useStore("place", "hello");
  const [chosen, choose] = useState(new Set());
  const all = [...(data?.dead_letters || [])].reverse(), wanted = (query.text || "").toLowerCase();
  const rows = all.filter((row) => (!query.component || row.component === query.component) && (!query.cause || causeOf(row) === query.cause) && (!query.replay || stateOf(row) === query.replay) && `${values(row)} ${text(row.message)} ${row.errors.at(-1) || ""}`.toLowerCase().includes(wanted));
  const shown = rows.slice(0, 100), ids = rows.filter((row) => chosen.has(keyOf(row))).map((row) => row.id), may = mayAct(hello);
  const toggle = (key, on) => { const next = new Set(chosen); if (on) next.add(key); else next.delete(key); choose(next); };
  const everything = rows.length > 0 && rows.every((row) => chosen.has(keyOf(row)));
  const box = (row) => html`<input type="checkbox" aria-label=${`choose dead letter ${row.id}`} checked=${chosen.has(keyOf(row))} onChange=${(event) => toggle(keyOf(row), event.target.checked)} />`;
  return html`<div class="title"><h2>Dead letters</h2><span class="quiet">${data ? `${count(data.total)} in all${data.total > MOST ? `; the latest ${count(MOST)} are here` : ""}` : ""}</span></div><${Problem} text=${error} />
    ${all.length ? html`<${Causes} rows=${all} chosen=${query.cause} /><div class="row filters"><${Choice} name="component" label="Component" options=${[["", "all"], ...new Set(all.map((row) => row.component))]} /><${Choice} name="replay" label="Replay" options=${[["", "all"], "not replayed", "under way", "done", "failed"]} /><${Field} name="text" label="Text" placeholder="in values or error" />
      <span class="grow"></span>${may ? html`<label class="check"><input type="checkbox" checked=${everything} onChange=${() => choose(new Set(everything ? [] : rows.map(keyOf)))} /> all ${count(rows.length)} shown</label><button class="main" disabled=${!ids.length} onClick=${() => propose("replay", { ids }, `Emits ${count(ids.length)} dead letters again, each as a new message of its spout. Those that are under way or done are left out.`)}>Replay ${count(ids.length)}</button>` : null}<button onClick=${() => save(`${name}-dead-letters.json`, rows)}>Export JSON</button></div>` : null}
    ${data ? html`<${Table} label="Dead letters" rows=${shown} empty=${all.length ? "No dead letter is like that." : "No dead letters."} picked=${(row) => chosen.has(keyOf(row))} columns=${[...(may ? [[html`<span class="unseen">chosen</span>`, box]] : []), ["id", (row) => row.id, true], ["at", (row) => time(row.at_ms)], ["component", (row) => html`<${Link} to=${path(name, "c", row.component)}>${row.component}<//>`], ["values", (row) => html`<code>${values(row)}</code>`], ["attempts", (row) => count(row.attempts), true], ["last error", (row) => row.errors.at(-1) || "–"], ["replay", (row) => (row.replay ? html`<span class=${`word ${row.replay.state.replace(" ", "-")}`}>${row.replay.state}</span> <span class="quiet">${time(row.replay.at_ms)}${row.replay.why ? `: ${row.replay.why}` : ""}</span>` : "–")]]} />${rows.length > shown.length ? html`<p class="quiet">The latest ${shown.length} of ${count(rows.length)}.</p>` : null}` : null}<${Command}>topo dead-letters ${name}<//>`;
}

export default { name: "dead-letters", title: "dead letters", isStill: true, View: Letters };
