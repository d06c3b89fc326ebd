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

function Line({ title, to, moment, scale, by, rate }) {
  const at = moment === null ? 0 : Math.max(0, Math.min(100, (100 * (moment - scale.low)) / (scale.high - scale.low || 1)));
  return html`<li><span class="who">${to ? html`<${Link} to=${to}>${title}<//>` : title}</span><span class="track" aria-hidden="true"><i style=${{ width: `${at}%` }}></i><b style=${{ left: `${at}%` }}></b></span>
    <span class="what">${moment === null ? "has not begun" : time(moment)}${by ? html`<span class=${rate === 0 ? "much" : "quiet"}>, next waits for ${by}${rate === 0 ? ", which emits nothing" : ""}</span>` : null}</span></li>`;
}

function Tasks({ name, component, scale }) {
  const { data, error } = useLoad(where(name, "c", component), 2);
  return html`<${Problem} text=${error} />${data ? html`<ul class="watermarks inner">${data.tasks.filter((row) => row.event_time).map((row) => html`<${Line} key=${row.index} title=${`${component}[${row.index}]`} moment=${row.event_time.watermark_ms} scale=${scale} by=${row.event_time.held_back_by} />`)}</ul>` : null}`;
}

function EventTime({ name, live }) {
  const [open, setOpen] = useState("");
  const rows = shownOf(live), timed = rows.filter((row) => row.event_time);
  if (!live) return html`<p class="empty">Waiting for figures.</p>`;
  if (!timed.length) return html`<h2>Event time</h2><p class="empty">No component of ${name} has event time, or its master does not run: give a spout watermarks=WatermarkStrategy...</p>`;
  const known = timed.map((row) => row.event_time.watermark_ms).filter((one) => one !== null), scale = axis(known.length ? known : [live.figures_ms], live.figures_ms);
  return html`<h2>Event time</h2><section class="card"><h3>Watermarks</h3><div class="scale" aria-hidden="true"><span>${time(scale.low)}</span><span>${scale.last}, ${time(scale.high)}</span></div>
      <ul class="watermarks">${timed.map((row) => html`<${Line} key=${row.component} title=${row.component} to=${path(name, "c", row.component)} moment=${row.event_time.watermark_ms} scale=${scale} by=${row.event_time.held_back_by} rate=${row.event_time.emits_per_s} />`)}</ul>
      <div class="row"><label class="field"><span>Tasks of</span><select value=${open} onChange=${(event) => setOpen(event.target.value)}><option value="">–</option>${timed.map((row) => html`<option value=${row.component}>${row.component}</option>`)}</select></label></div>${open ? html`<${Tasks} key=${open} name=${name} component=${open} scale=${scale} />` : null}</section>
    <h3>Lag, late inputs, open windows</h3><${Table} label="Event time by component" rows=${timed} columns=${[["component", (row) => html`<${Link} to=${path(name, "c", row.component)}>${row.component}<//>`], ["behind the clock", (row) => seconds(row.event_time.lag_s), true], ["held back by", (row) => row.event_time.held_back_by || "–"],
      ["late", (row) => count(row.counters.late || 0), true], ["of them dropped", (row) => html`<span class=${row.counters.late_dropped ? "much" : ""}>${count(row.counters.late_dropped || 0)}</span>`, true], ["dropped a minute", (row) => count(60 * (row.growing.late_dropped || 0)), true], ["open windows", (row) => count(row.levels.open_windows), true], ["timers", (row) => count(row.levels.timers), true], ["state entries", (row) => count(row.levels.state_entries), true]]} />
    <${Charts} name=${name} components=${timed.map((row) => row.component)} charts=${[["behind the clock", "lag", seconds], ["state entries", "state", count]]} title="The past" /><${Command}>topo history ${name} --series lag<//>`;
}

export default { name: "time", title: "event time", View: EventTime };
