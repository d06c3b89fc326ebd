// Logs of all workers as one, filtered by the server; new rows are appended while it follows. Below them, the log levels.
import { useEffect, useRef, useState } from "preact/hooks";
import { seconds, time } from "./format.js";
import { html } from "./html.js";
import { Choice, Command, Field, Problem, mayAct, shownOf, where } from "./parts.js";
import { ask, setQuery, useLoad, useStore } from "./store.js";

const MOST = 1000;
const LEVELS = ["debug", "info", "warning", "error", "critical"];

/** Those of the found rows that are not among the last ones: the server repeats the last second, whose lines may come late. */
function unseen(rows, found, since) {
  const known = new Map(), key = (row) => JSON.stringify(row);
  for (const row of rows) if (row.time >= since) known.set(key(row), (known.get(key(row)) || 0) + 1);
  return found.filter((row) => { const left = known.get(key(row)) || 0; known.set(key(row), left - 1); return left < 1; });
}

/** Rows from the newest 500 on; `paused` keeps them as they are. */
function useRows(name, query, paused) {
  const [state, set] = useState({ rows: null, error: "" }), stands = useRef(paused);
  stands.current = paused;
  useEffect(() => {
    let ended = false, timer = 0, next = "", rows = [];
    const asked = new URLSearchParams({ level: query.level || "info", component: query.component || "", text: query.text || "" });
    const load = async () => {
      if (!document.hidden && !(stands.current && next)) {
        try {
          const data = await ask(`${where(name, "logs")}?${asked}&after=${encodeURIComponent(next)}`);
          if (ended) return;
          const fresh = unseen(rows, data.rows, next);
          if (fresh.length || !next) { rows = [...rows, ...fresh].sort((one, two) => (one.time < two.time ? -1 : Number(one.time > two.time))).slice(-MOST); set({ rows, error: "" }); }
          next = data.next || next || "0";
        } catch (error) { if (!ended) set({ rows, error: error.message }); }
      }
      if (!ended) timer = setTimeout(load, 2000);
    };
    // Who types a filter asks once.
    timer = setTimeout(load, 250);
    return () => { ended = true; clearTimeout(timer); };
  }, [name, query.level, query.component, query.text]);
  return state;
}

function Row({ row, at }) {
  const who = row.component ? `${row.component}[${row.task}]` : `worker ${row.worker ?? "?"}`;
  return html`<li class=${`log ${(row.level || "").toLowerCase()} ${at ? "picked" : ""}`}><button class="at" title="A link to this line" onClick=${() => setQuery({ at: row.time })}>${time(row.time)}</button><b>${row.level}</b><span class="from">${who}</span><span class="message">${row.message}</span></li>`;
}

function Lines({ rows, at, follows }) {
  const place = useRef(null);
  const first = at ? rows.findIndex((row) => row.time >= at) : -1;
  useEffect(() => {
    const here = place.current, one = here?.querySelector(".picked");
    if (one) one.scrollIntoView({ block: "nearest" }); else if (here && follows) here.scrollTop = here.scrollHeight;
  }, [rows, at, follows]);
  return html`<div class="logs" ref=${place} tabindex="0" role="log" aria-live="off" aria-label="Log lines"><ol>${rows.map((row, index) => html`<${Row} key=${`${row.time} ${index}`} row=${row} at=${index === first} />`)}</ol></div>`;
}

function Levels({ name, components }) {
  const [again, setAgain] = useState(0), [error, setError] = useState("");
  const { data } = useLoad(`${where(name, "log-levels")}?again=${again}`, 5);
  const act = async (work) => { try { await work(); setError(""); } catch (problem) { setError(problem.message); } setAgain(again + 1); };
  const change = (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    act(() => ask(where(name, "observations"), { kind: "log-level", component: given.get("component"), levels: { [given.get("logger").trim()]: given.get("level") }, for_s: Number(given.get("for")) }));
  };
  return html`<section class="card"><h3>Log levels</h3><p class="quiet">A changed level goes back by itself.</p><${Problem} text=${error} />
    ${(data?.levels || []).map((row) => html`<p class="row"><code>${row.logger || "root"} = ${row.level}</code> <span class="quiet">${row.component || "all components"}, ${seconds(row.left_s)} left</span> <button onClick=${() => act(() => ask(where(name, "observations", String(row.id)), undefined, "DELETE"))}>Back</button></p>`)}
    <form class="row filters" onSubmit=${change}><label class="field"><span>Logger</span><input name="logger" placeholder="root" /></label><label class="field"><span>Level</span><select name="level">${LEVELS.map((one) => html`<option value=${one}>${one}</option>`)}</select></label>
      <label class="field"><span>Component</span><select name="component"><option value="">all</option>${components.map((one) => html`<option value=${one}>${one}</option>`)}</select></label><label class="field"><span>For</span><select name="for"><option value="60">1 min</option><option value="600" selected>10 min</option><option value="3600">1 h</option></select></label><button>Change</button></form></section>`;
}

function Logs({ name, live }) {
  const { place: { query }, hello } = useStore("place", "hello"), paused = query.follow === "no" || Boolean(query.at);
  const { rows, error } = useRows(name, query, paused), components = shownOf(live).map((row) => row.component);
  return html`<h2>Logs</h2><div class="row filters"><${Choice} name="level" label="Level" options=${[["info", "info"], ...LEVELS.filter((one) => one !== "info")]} /><${Choice} name="component" label="Component" options=${[["", "all"], ...components]} /><${Field} name="text" label="Text" placeholder="in the message" />
      <span class="grow"></span><button aria-pressed=${!paused} onClick=${() => setQuery(paused ? { follow: null, at: null } : { follow: "no" })}>${paused ? "Follow" : "Pause"}</button></div><${Problem} text=${error} />
    ${rows === null ? html`<p class="empty">Reading.</p>` : rows.length ? html`<${Lines} rows=${rows} at=${query.at} follows=${!paused} />` : html`<p class="empty">No line is like that.</p>`}
    ${mayAct(hello) && live?.running ? html`<${Levels} name=${name} components=${components} />` : null}<${Command}>topo logs ${name} --follow<//>`;
}

export default { name: "logs", title: "logs", isStill: true, View: Logs };
