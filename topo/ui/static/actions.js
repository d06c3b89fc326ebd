// What operators do: each action is a command that the server runs, confirmed in a dialog. Its answer stays in it.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { propose, shownOf, where } from "./parts.js";
import { ask, change, useStore } from "./store.js";

const WORDS = {
  savepoint: "Stores a savepoint beside the checkpoints; the topology goes on.", activate: "Lets the sources emit again.",
  deactivate: "Pauses the sources; messages under way are finished.", rebalance: "Stops, and starts again with other numbers of tasks. State goes along where it can be split; else it is refused.",
  drain: "Pauses the sources, waits up to 30 s for messages under way, and ends the topology.", kill: "Ends the topology at once. Messages under way are lost, or come again after a resume.",
  resume: "Starts the topology again with what it was submitted with.",
};
const BODIES = { drain: { within: "30s" } };
const GRAVE = new Set(["kill", "drain", "rebalance", "replace"]);

export function ActionMenu({ live }) {
  const place = useRef(null);
  const runs = live?.running, names = Object.keys(WORDS).filter((one) => (one === "resume" ? !runs : runs) && (one !== "savepoint" || live.figures?.delivery === "exactly_once"));
  const choose = (one) => { place.current.open = false; propose(one, BODIES[one] || {}, WORDS[one]); };
  if (!live) return null;
  return html`<details class="menu" ref=${place}><summary>Actions</summary><div class="menu-list">${names.map((one) => html`<button onClick=${() => choose(one)}>${one}</button>`)}</div></details>`;
}

/** Numbers of tasks; an action without a change has no command. */
function Numbers({ live, set }) {
  const [chosen, choose] = useState({});
  const rows = shownOf(live);
  const write = (component, before, text) => {
    const next = { ...chosen }, number = Number(text);
    if (!Number.isInteger(number) || number < 1 || number === before) delete next[component]; else next[component] = number;
    choose(next);
    const { "": workers, ...parallelism } = next;
    set({ parallelism, ...(workers ? { workers } : {}) });
  };
  const line = (key, title, before) => html`<label class="field"><span>${title}</span><input type="number" min="1" max="1000" value=${chosen[key] ?? before} onInput=${(event) => write(key, before, event.target.value)} /></label>`;
  return html`<div class="numbers">${rows.map((row) => line(row.component, row.component, row.parallelism))}${line("", "workers (processes)", live?.figures?.workers.length)}</div>`;
}

function Proposal({ name, live, proposed }) {
  const [body, setBody] = useState(proposed.body), [command, setCommand] = useState(null), [answer, setAnswer] = useState(null), [busy, setBusy] = useState(false);
  const { action } = proposed, at = where(name, "actions", action);
  const hasChange = action !== "rebalance" || Object.keys(body.parallelism || {}).length > 0 || body.workers;
  useEffect(() => {
    let ended = false;
    setCommand(null);
    if (hasChange) ask(`${at}?command=1`, body).then((found) => !ended && setCommand(found.command), (error) => !ended && setAnswer({ failed: true, text: error.message }));
    return () => { ended = true; };
  }, [JSON.stringify(body)]);
  const run = async (more) => {
    setBusy(true); setAnswer(null);
    try { const done = await ask(at, { ...body, ...more }); setAnswer({ failed: done.exit !== 0, text: done.output.trim() || "done" }); } catch (error) { setAnswer({ failed: true, text: error.message }); }
    setBusy(false);
  };
  const close = () => change({ proposed: null });
  const ready = hasChange && command !== null && !busy;
  return html`<h2>${action} ${proposed.title || name}?</h2>${proposed.words && html`<p>${proposed.words}</p>`}
    ${action === "rebalance" ? html`<${Numbers} live=${live} set=${setBody} />` : null}
    ${command ? html`<p class="same"><span>This runs</span> <code>${command}</code></p>` : hasChange ? null : html`<p class="quiet">Change a number.</p>`}
    ${answer ? html`<pre role="status" class=${answer.failed ? "answer bad" : "answer"}>${answer.text}</pre>` : busy ? html`<p role="status" class="quiet">Running.</p>` : null}
    <div class="row end"><button class="first" onClick=${close}>${answer && !answer.failed ? "Close" : "Cancel"}</button>
      ${action === "rebalance" || action === "replay" ? html`<button disabled=${!ready} onClick=${() => run({ dry_run: true })}>Dry run</button>` : null}
      <button class=${GRAVE.has(action) ? "grave" : "main"} disabled=${!ready} onClick=${() => run({})}>${busy ? "running" : action}</button></div>`;
}

export function ActionDialog({ name, live }) {
  const place = useRef(null), { proposed } = useStore("proposed");
  useEffect(() => { if (proposed && !place.current.open) { place.current.showModal(); place.current.querySelector(".first").focus(); } if (!proposed && place.current.open) place.current.close(); }, [proposed]);
  return html`<dialog ref=${place} aria-label="Confirm" onClose=${() => change({ proposed: null })}>${proposed ? html`<${Proposal} key=${proposed.action} name=${name} live=${live} proposed=${proposed} />` : null}</dialog>`;
}
