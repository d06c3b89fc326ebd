// What pages are made of: links, tables, status words, findings, filters that live in the address, forms that begin to watch.
import { useEffect, useRef, useState } from "preact/hooks";
import { seconds } from "./format.js";
import { html } from "./html.js";
import { ask, change, go, setQuery, useStore } from "./store.js";

export function Link({ to, children, ...rest }) {
  const open = (event) => { if (!event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); go(to); } };
  return html`<a href=${to} onClick=${open} ...${rest}>${children}</a>`;
}

/** Columns: [title, value of a row, is a number]. `picked` marks a row. */
export function Table({ label, columns, rows, empty = "Nothing here.", picked }) {
  if (!rows?.length) return html`<p class="empty">${empty}</p>`;
  return html`<div class="wide" tabindex="0" role="region" aria-label=${label}><table><thead><tr>${columns.map(([title, , number]) => html`<th scope="col" class=${number ? "n" : ""}>${title}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.id ?? row.name ?? null} class=${picked?.(row) ? "picked" : ""}>${columns.map(([, value, number]) => html`<td class=${number ? "n" : ""}>${value(row)}</td>`)}</tr>`)}</tbody></table></div>`;
}

export const Word = ({ word }) => html`<span class=${`word ${(word || "").toLowerCase().replaceAll(" ", "-")}`}>${word || "–"}</span>`;
export const Problem = ({ text }) => (text ? html`<p class="finding problem" role="alert">${text}</p>` : null);
export const Command = ({ children }) => html`<p class="same"><span>The same in a terminal</span> <code>${children}</code></p>`;

/** `brief`: sentences alone; the overview has the fixes. */
export function Findings({ findings, brief }) {
  return html`<div role="status" class=${brief ? "findings brief" : "findings"}>${findings.map((one) => html`<div class=${`finding ${one.severity}`}><p>${one.sentence}.</p>
    ${!brief && (one.remedy || one.commands.length) ? html`<p class="commands"><span>${one.remedy}${one.remedy && one.commands.length ? ":" : ""}</span>${one.commands.map((line) => html`<code>${line}</code>`)}</p>` : null}</div>`)}</div>`;
}

/** Have the browser store data as a file. */
export function save(file, data) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(data, null, 2)], { type: "application/json" }));
  link.download = file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Shares of time as a bar, with the figures in words for who does not see it. */
export function Bar({ busy = 0, held = 0 }) {
  const one = Math.min(1, busy || 0), two = Math.min(1 - one, held || 0);
  return html`<span class="bar" role="img" aria-label=${`busy ${Math.round(100 * one)} %, held back ${Math.round(100 * two)} %`}><i class="busy" style=${{ width: `${100 * one}%` }}></i><i class="held" style=${{ width: `${100 * two}%` }}></i></span>`;
}

/** A text of the address: a filter that a link keeps. */
export function Field({ name, label, ...rest }) {
  const { query } = useStore("place").place;
  return html`<label class="field"><span>${label}</span><input value=${query[name] || ""} spellcheck=${false} onInput=${(event) => setQuery({ [name]: event.target.value })} ...${rest} /></label>`;
}

/** Options: texts, or [value, text]; the first is what the address leaves out. */
export function Choice({ name, label, options }) {
  const { query } = useStore("place").place, pairs = options.map((one) => (Array.isArray(one) ? one : [one, one]));
  const value = query[name] ?? pairs[0]?.[0] ?? "";
  return html`<label class="field"><span>${label}</span><select value=${value} onChange=${(event) => setQuery({ [name]: event.target.value === String(pairs[0][0]) ? null : event.target.value })}>
    ${pairs.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select></label>`;
}

/** Components of the newest figures; ackers are none of the user's. */
export const shownOf = (live) => (live?.figures?.components || []).filter((row) => row.kind !== "acker");
export const mayAct = (hello) => hello && !hello.read_only;
export const where = (name, ...rest) => `/api/t/${[name, ...rest].map(encodeURIComponent).join("/")}`;

/** Ask for an action: the dialog of the page shows its command, and runs it after a second click. */
export const propose = (action, body = {}, words = "") => change({ proposed: { action, body, words } });

/** Watch until `stop` is called: `heard` gets each answer. */
function watch(name, asked, heard, failed) {
  let ended = false, timer = 0, id = null, after = 0;
  const end = () => { ended = true; clearTimeout(timer); if (id !== null) ask(where(name, "observations", String(id)), undefined, "DELETE").catch(() => {}); };
  const poll = async () => {
    try {
      const answer = await ask(`${where(name, "observations", String(id))}?after=${after}`);
      if (ended) return;
      after = answer.last;
      heard(answer);
      if (answer.ended) { ended = true; return; }
    } catch (error) { if (!ended) { ended = true; failed(error.message); } return; }
    timer = setTimeout(poll, 1000);
  };
  ask(where(name, "observations"), asked).then((answer) => { id = answer.id; if (ended) end(); else timer = setTimeout(poll, 500); }, (error) => failed(error.message));
  return end;
}

/** To watch one thing at a time: `start(asked, heard)`. Who leaves the page stops, too. */
export function useWatch(name) {
  const stop = useRef(null), [runs, setRuns] = useState(false), [error, setError] = useState("");
  const end = () => { stop.current?.(); stop.current = null; setRuns(false); };
  const start = (asked, heard) => {
    end(); setError(""); setRuns(true);
    stop.current = watch(name, asked, (answer) => { heard(answer); if (answer.ended) setRuns(false); }, (problem) => { setError(problem); setRuns(false); });
  };
  useEffect(() => end, []);
  return { runs, error, start, end };
}

/** The form of what is watched: its fields, Start or Stop, and why it failed. */
export function WatchForm({ watching, live, start, children }) {
  return html`<form class="row filters" onSubmit=${(event) => { event.preventDefault(); start(); }}>${children}${watching.runs ? html`<button key="stop" type="button" onClick=${watching.end}>Stop</button>` : html`<button key="start" class="main" disabled=${!live?.running}>Start</button>`}</form><${Problem} text=${watching.error} />`;
}

export const left = (answer) => (answer && !answer.ended ? `${seconds(answer.left_s)} left` : "ended");
