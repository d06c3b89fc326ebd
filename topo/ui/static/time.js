// Event time: how far it has come in each component, whom it waits for, and the inputs that came too late.
import { useState } from "preact/hooks";
import { Charts } from "./charts.js";
import { count, seconds, time } from "./format.js";
import { html } from "./html.js";
import { Command, Link, Problem, Table, shownOf, where } from "./parts.js";
import { path, useLoad } from "./store.js";

/** From the watermark that is behind all others to now; to the newest one where all data is old. */
function axis(moments, now) {
  const low = Math.min(...moments), high = Math.max(...moments), spread = Math.max(high - low, 5000);
  return now - high > 10 * spread ? { low: low - 0.05 * spread, high: high + 0.05 * spread, last: "the newest watermark" } : { low: low - 0.1 * (now - low), high: now, last: "now" };
}

const waitsFor = ({ held_back_by: by, emits_per_s: rate }) => (by ? html`<span class=${rate === 0 ? "much" : "quiet"}>, next waits for ${by}${rate === 0 ? ", which emits nothing" : ""}</span>` : null);

function Line({ title, to, moment, scale, children }) {
  const at = !Number.isFinite(moment) ? 0 : Math.max(0, Math.min(100, (100 * (moment - scale.low)) / (scale.high - scale.low || 1)));
  return html`<li><span class="who" title=${title}>${to ? html`<${Link} to=${to}>${title}<//>` : title}</span><span class="track" aria-hidden="true"><i style=${{ width: `${at}%` }}></i><b style=${{ left: `${at}%` }}></b></span>
    <span class="what">${moment === null ? "has not begun" : moment === undefined ? "idle, or ended" : time(moment)}${children}</span></li>`;
}

/** How far each input of a component has come where its tasks are, and which of several holds them back. */
function Edges({ name, edges, timed, scale }) {
  const holds = ({ source, target }) => edges.filter((one) => one.target === target).length > 1 && timed.find((row) => row.component === target).event_time.held_back_by?.startsWith(`${source}[`);
  return html`<h3>Edges</h3><ul class="watermarks">${edges.map((one) => html`<${Line} key=${`${one.source}>${one.target}`} title=${`${one.source} → ${one.target}`} to=${path(name, "c", one.target)} moment=${one.watermark_ms} scale=${scale}>${holds(one) ? html`<span class="quiet">, holds ${one.target} back</span>` : null}<//>`)}</ul>`;
}

function Tasks({ name, component, scale }) {
  const { data, error } = useLoad(where(name, "c", component), 2);
  return html`<${Problem} text=${error} />${data ? html`<ul class="watermarks inner">${data.tasks.filter((row) => row.event_time).map((row) => html`<${Line} key=${row.index} title=${`${component}[${row.index}]`} moment=${row.event_time.watermark_ms} scale=${scale}>${waitsFor(row.event_time)}<//>`)}</ul>` : null}`;
}

function EventTime({ name, live }) {
  const [open, setOpen] = useState("");
  const rows = shownOf(live), timed = rows.filter((row) => row.event_time);
  if (!live) return html`<p class="empty">Waiting for figures.</p>`;
  if (!timed.length) return html`<h2>Event time</h2><p class="empty">No component of ${name} has event time, or its master does not run: give a spout watermarks=WatermarkStrategy...</p>`;
  const readers = timed.map((row) => row.component), edges = live.figures.edges.filter((one) => readers.includes(one.target));
  const known = [...timed.map((row) => row.event_time), ...edges].map((one) => one.watermark_ms).filter(Number.isFinite), scale = axis(known.length ? known : [live.figures_ms], live.figures_ms);
  return html`<h2>Event time</h2><section class="card"><h3>Watermarks</h3><div class="scale" aria-hidden="true"><span>${time(scale.low)}</span><span>${scale.last}, ${time(scale.high)}</span></div>
      <ul class="watermarks">${timed.map((row) => html`<${Line} key=${row.component} title=${row.component} to=${path(name, "c", row.component)} moment=${row.event_time.watermark_ms} scale=${scale}>${waitsFor(row.event_time)}<//>`)}</ul>
      <${Edges} name=${name} edges=${edges} timed=${timed} scale=${scale} />
      <div class="row"><label class="field"><span>Tasks of</span><select value=${open} onChange=${(event) => setOpen(event.target.value)}><option value="">–</option>${timed.map((row) => html`<option value=${row.component}>${row.component}</option>`)}</select></label></div>${open ? html`<${Tasks} key=${open} name=${name} component=${open} scale=${scale} />` : null}</section>
    <h3>Lag, late inputs, open windows</h3><${Table} label="Event time by component" rows=${timed} columns=${[["component", (row) => html`<${Link} to=${path(name, "c", row.component)}>${row.component}<//>`], ["behind the clock", (row) => seconds(row.event_time.lag_s), true], ["held back by", (row) => row.event_time.held_back_by || "–"],
      ["late", (row) => count(row.counters.late || 0), true], ["of them dropped", (row) => html`<span class=${row.counters.late_dropped ? "much" : ""}>${count(row.counters.late_dropped || 0)}</span>`, true], ["dropped a minute", (row) => count(60 * (row.growing.late_dropped || 0)), true], ["open windows", (row) => count(row.levels.open_windows), true], ["timers", (row) => count(row.levels.timers), true], ["state entries", (row) => count(row.levels.state_entries), true]]} />
    <${Charts} name=${name} components=${readers} charts=${[["behind the clock", "lag", seconds], ["state entries", "state", count]]} title="The past" /><${Command}>topo history ${name} --series lag<//>`;
}

export default { name: "time", title: "event time", View: EventTime };
