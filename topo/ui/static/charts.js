// Charts of the past, all with one cursor. Figures and marks come from the server; a missing one is a gap.
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import { count, percent, rate, seconds, time } from "./format.js";
import { html } from "./html.js";
import { Choice, Link, Problem, where } from "./parts.js";
import { path, useLoad, useStore } from "./store.js";

const RANGES = [[300, "5 min"], [3600, "1 h"], [21600, "6 h"], [86400, "1 d"], [1209600, "14 d"]];
export const CHARTS = [["out a second", "out", rate], ["capacity", "capacity", percent], ["p99", "p99", seconds], ["tuples in front", "in_front", count]];
const COLOURS = ["--accent", "--warm", "--good", "--bad", "--violet", "--soft"];
const HIGH = 180;

/** A dashed line for each mark; and above the lines of figures, which reach no higher than 10/11, a bar for each checkpoint, as long as it took. */
function drawEvents(plot, { marks, checkpoints }, colour) {
  const { ctx, bbox } = plot, slowest = Math.max(...checkpoints.map(([, took]) => took));
  const at = (moment, put) => { const x = Math.round(plot.valToPos(moment, "x", true)); if (x >= bbox.left && x <= bbox.left + bbox.width) put(x); };
  ctx.save(); ctx.strokeStyle = ctx.fillStyle = colour; ctx.lineWidth = devicePixelRatio; ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const { at_ms } of marks) at(at_ms / 1000, (x) => { ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke(); });
  for (const [moment, took] of checkpoints) at(moment, (x) => ctx.fillRect(x - devicePixelRatio, bbox.top, 2 * devicePixelRatio, Math.max(0.02, (0.08 * took) / slowest) * bbox.height));
  ctx.restore();
}

/** Cells of [step seconds by one doubling], the stronger the greater their share of the messages of their time. */
function drawHeat(plot, { first, step, rows }, colour) {
  const { ctx, bbox } = plot, x = (at) => plot.valToPos(at, "x", true), y = (power) => plot.valToPos(power, "y", true);
  ctx.save(); ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip(); ctx.fillStyle = colour;
  for (const { power, shares } of rows) shares.forEach((share, index) => {
    const left = Math.round(x(first + index * step)), top = Math.round(y(power));
    ctx.globalAlpha = strength(share);
    if (share) ctx.fillRect(left, top, Math.round(x(first + (index + 1) * step)) - left, Math.round(y(power - 1)) - top);
  });
  ctx.restore();
}

/** How strong the colour of a share is: what few messages take is to be seen, too. */
export const strength = (share) => (share ? 0.12 + 0.88 * Math.sqrt(share) : 0);

function draw(here, lines, form, events) {
  const probe = document.createElement("i");
  here.append(probe);
  const colour = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
  const soft = colour("--soft"), accent = colour("--accent"), line = colour("--line"), mark = colour("--mark"), axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const series = lines.map(([name], index) => ({ label: name, stroke: colour(COLOURS[index % COLOURS.length]), width: 1.6, points: { show: false }, dash: index >= COLOURS.length ? [6, 4] : [] }));
  probe.remove();
  return new uPlot({
    width: here.clientWidth, height: HIGH, cursor: { sync: { key: "topo" }, y: false }, legend: { live: false, show: lines.length > 1 }, hooks: { draw: [(plot) => { if (events.current.heat) drawHeat(plot, events.current.heat, accent); drawEvents(plot, events.current, mark); }] },
    axes: [{ ...axis, size: 32, space: 72, values: (_, moments, ...[, , apart]) => moments.map((at) => time(at * 1000, false).slice(0, apart < 60 ? 8 : 5)) }, { ...axis, size: 62, values: (_, values) => values.map(form), ...(events.current.heat ? { incrs: [1, 2, 5, 10] } : {}) }], scales: { y: { range: (_, low, high) => events.current.heat?.range || [0, high > 0 ? high * 1.1 : 1] } },
    series: [{}, ...series],
  }, [[], ...lines.map(() => [])], here);
}

export function Chart({ title, form, times, lines, events }) {
  const place = useRef(null), plot = useRef(null), known = useRef(events), data = useRef(null), inSight = useRef(true);
  const { theme, utc } = useStore("theme", "utc");
  const names = lines.map(([name]) => name).join("\n");
  known.current = events;
  data.current = [times, ...lines.map(([, values]) => values)];
  useEffect(() => {
    const here = place.current;
    // An effect may run after its page was left.
    if (!here) return undefined;
    plot.current = draw(here, lines, form, known);
    plot.current.setData(data.current);
    const size = new ResizeObserver(() => plot.current?.setSize({ width: here.clientWidth, height: HIGH }));
    size.observe(here);
    // What is out of sight is drawn when it comes into sight, or is printed.
    const update = () => { if (plot.current?.series.length === data.current.length) plot.current.setData(data.current); };
    const seen = new IntersectionObserver((changes) => { inSight.current = changes.at(-1).isIntersecting; if (inSight.current) update(); });
    seen.observe(here);
    addEventListener("beforeprint", update);
    return () => { removeEventListener("beforeprint", update); seen.disconnect(); size.disconnect(); plot.current?.destroy(); plot.current = null; };
  }, [names, theme, utc]);
  useEffect(() => { if (inSight.current) plot.current?.setData(data.current); }, [times, lines]);
  return html`<figure><figcaption>${title}</figcaption><div class="plot" ref=${place} aria-hidden="true"></div></figure>`;
}

export const timesOf = (data) => Array.from({ length: data.length }, (_, index) => data.first_ms / 1000 + index * data.step_s);

/** The past of subjects over a range: {data, error}, as of the server. */
export function usePast(name, subjects, since, every, step = Math.ceil(since / 600)) {
  return useLoad(`${where(name, "history")}?since_s=${since}&step_s=${step}&subjects=${encodeURIComponent(subjects.join(","))}`, every ?? (since <= 300 ? 3 : 30));
}

/** What `drawEvents` draws of the past: marks, and the checkpoints as [seconds since 1970, seconds it took], of each point the slowest. */
export function eventsOf({ marks, series }, times) {
  const took = series.checkpoints?.took || [];
  return { marks, checkpoints: times.flatMap((at, index) => (typeof took[index] === "number" ? [[at, took[index]]] : [])) };
}

function Events({ name, events: { marks, checkpoints } }) {
  const [at, took] = checkpoints.reduce((most, one) => (one[1] > most[1] ? one : most), [0, -1]);
  return html`${took < 0 ? null : html`<p class="quiet legend">Bars at the upper edge are <${Link} to=${path(name, "checkpoints")}>checkpoints<//>; their length is the time each took: the slowest ${seconds(took)}, ${time(at * 1000)}.</p>`}${marks.length ? html`<${Marks} marks=${marks} />` : null}`;
}

function Marks({ marks }) {
  return html`<details class="marks"><summary>${marks.length} ${marks.length === 1 ? "event" : "events"} in this time, dashed lines in the charts</summary><ol>${marks.slice(-40).reverse().map((one) => html`<li><time>${time(one.at_ms)}</time> ${one.text}</li>`)}</ol></details>`;
}

/** The last figures of components over the range that the address names. */
export function Charts({ name, components, charts = CHARTS, title = "The past" }) {
  const { place, utc } = useStore("place", "utc"), since = Number(place.query.since) || 300;
  const { data, error } = usePast(name, ["checkpoints", ...components.map((one) => `component/${one}`)], since);
  const lines = (series) => components.flatMap((one) => { const values = data.series[`component/${one}`]?.[series]; return values ? [[one, values]] : []; });
  const shown = (times, events = eventsOf(data, times)) => html`<div class="charts">${charts.map(([title, series, form]) => lines(series).length ? html`<${Chart} key=${series} title=${title} form=${form} times=${times} lines=${lines(series)} events=${events} />` : null)}</div><${Events} name=${name} events=${events} />`;
  // Figures come each second, and the page is drawn again with them; a chart has nothing new before its points are loaded again.
  const drawn = useMemo(() => (data?.length > 1 ? shown(timesOf(data)) : html`<p class="empty">No figures yet.</p>`), [data, utc, components.join("\n")]);
  return html`<div class="title"><h2>${title}</h2><${Choice} name="since" label="Range" options=${RANGES} /></div><${Problem} text=${error} />${drawn}`;
}

/** A small line of the last values. */
export function Spark({ values, label }) {
  const known = (values || []).filter((value) => value !== null);
  if (known.length < 2) return html`<svg class="spark" width="96" height="24" aria-hidden="true"></svg>`;
  const most = Math.max(...known) || 1, width = 96 / (values.length - 1);
  let pen = "M";
  const d = values.map((value, index) => { if (value === null) { pen = "M"; return ""; } const point = `${pen}${(index * width).toFixed(1)},${(22 - (20 * value) / most).toFixed(1)}`; pen = "L"; return point; }).join("");
  return html`<svg class="spark" width="96" height="24" viewBox="0 0 96 24" role="img" aria-label=${label}><path d=${d} /></svg>`;
}
