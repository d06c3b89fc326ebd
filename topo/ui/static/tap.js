// Live tuples of a component. Who leaves the page ends the tap.
import { useState } from "preact/hooks";
import { count, rate, text, time } from "./format.js";
import { html } from "./html.js";
import { Choice, Command, Field, Table, WatchForm, left, mayAct, save, shownOf, useWatch } from "./parts.js";
import { useStore } from "./store.js";

const MOST = 300;

function Counts({ seen, asked }) {
  const passed = Math.max(0.5, (Date.now() - seen.began) / 1000);
  return html`<p role="status" class="quiet">${count(seen.rows.length)} shown of ${count(seen.answer.seen)} that passed, ${rate(seen.answer.seen / passed)} a second${asked.where ? `; ${count(seen.answer.matched)} of ${count(seen.answer.looked)} looked at matched` : ""}${seen.answer.dropped ? `; ${count(seen.answer.dropped)} were too much to send` : ""} · ${left(seen.answer)}${seen.answer.problem ? html` · <b>${seen.answer.problem}</b>` : null}</p>`;
}

function Tap({ name, live }) {
  const { place: { query }, hello } = useStore("place", "hello"), watching = useWatch(name), [seen, setSeen] = useState(null);
  const components = shownOf(live).map((row) => row.component), component = query.component || components[0] || "";
  const asked = { kind: "tap", component, for_s: 600, rate: Number(query.rate) || 5, direction: query.direction || "out", where: query.where || "", stream: query.stream || "" };
  const start = () => {
    const began = Date.now();
    let rows = [];
    setSeen(null);
    watching.start(asked, (answer) => { rows = [...answer.rows.reverse(), ...rows].slice(0, MOST); setSeen({ rows, answer, began }); });
  };
  if (hello && !mayAct(hello)) return html`<h2>Tap</h2><p class="empty">This page is for viewers: it watches no tuples.</p>`;
  const fields = [...new Set((seen?.rows || []).flatMap((row) => Object.keys(row.fields)))];
  const option = `${asked.direction === "in" ? " --in" : ""}${asked.stream ? ` --stream ${asked.stream}` : ""}${asked.where ? ` --where '${asked.where.replaceAll("'", "'\\''")}'` : ""}${query.rate ? ` --rate ${query.rate}` : ""}`;
  return html`<h2>Tap</h2><${WatchForm} watching=${watching} live=${live} start=${start}><${Choice} name="component" label="Component" options=${components} /><${Choice} name="direction" label="Tuples" options=${[["out", "that it emits"], ["in", "that it takes"]]} /><${Field} name="stream" label="Stream" placeholder="all" /><${Field} name="where" label="Where" placeholder="count > 3 and word != 'the'" class="wide-input" /><${Choice} name="rate" label="A second" options=${["5", "20", "100"]} /><//>
    ${seen ? html`<div class="title"><${Counts} seen=${seen} asked=${asked} /><button disabled=${!seen.rows.length} onClick=${() => save(`${name}-${component}-tuples.json`, seen.rows)}>Export JSON</button></div><${Table} label="Tuples" rows=${seen.rows} empty="No tuple yet." columns=${[["time", (row) => time(row.at_ms)], ["task", (row) => `${component}[${row.index}]`], ...(seen.rows.some((row) => row.stream !== "default") ? [["stream", (row) => row.stream]] : []), ...fields.map((one) => [one, (row) => (one in row.fields ? text(row.fields[one]) : ""), seen.rows.every((row) => typeof row.fields[one] === "number")])]} />` : watching.runs ? html`<p class="empty" role="status">Waiting for tuples.</p>` : html`<p class="empty">A tap shows a sample of live tuples. The topology does not wait for it, and nothing has to be prepared.</p>`}<${Command}>topo tap ${name} ${component}${option}<//>`;
}

export default { name: "tap", title: "tap", isStill: true, View: Tap };
