// Charts of the past, all with one cursor. Figures and marks come from the server; a missing one is a gap.
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import { count, percent, rate, seconds, time } from "./format.js";
import { html } from "./html.js";
import { Choice, Problem, where } from "./parts.js";
import { useLoad, useStore } from "./store.js";

const RANGES = [[300, "5 min"], [3600, "1 h"], [21600, "6 h"], [86400, "1 d"], [1209600, "14 d"]];
export const CHARTS = [["out a second", "out", rate], ["capacity", "capacity", percent], ["p99", "p99", seconds], ["tuples in front", "in_front", count]];
const COLOURS = ["--accent", "--warm", "--good", "--bad", "--violet", "--soft"];
const HIGH = 180;

function draw(here, lines, form, marks) {
  const probe = document.createElement("i");
  here.append(probe);
  const colour = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
  const soft = colour("--soft"), line = colour("--line"), mark = colour("--mark"), axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const series = lines.map(([name], index) => ({ label: name, stroke: colour(COLOURS[index % COLOURS.length]), width: 1.6, points: { show: false }, dash: index >= COLOURS.length ? [6, 4] : [] }));
  probe.remove();
  const drawMarks = (plot) => {
    const { ctx, bbox } = plot;
    ctx.save(); ctx.strokeStyle = mark; ctx.lineWidth = devicePixelRatio; ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const { at_ms } of marks.current) { const x = Math.round(plot.valToPos(at_ms / 1000, "x", true)); if (x >= bbox.left && x <= bbox.left + bbox.width) { ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke(); } }
    ctx.restore();
  };
  return new uPlot({
    width: here.clientWidth, height: HIGH, cursor: { sync: { key: "topo" }, y: false }, legend: { live: false, show: lines.length > 1 }, hooks: { draw: [drawMarks] },
    axes: [{ ...axis, size: 32, values: (_, moments) => moments.map((at) => time(at * 1000, false).slice(0, -3)) }, { ...axis, size: 62, values: (_, values) => values.map(form) }], scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    series: [{}, ...series],
  }, [[], ...lines.map(() => [])], here);
}

export function Chart({ title, form, times, lines, marks = [] }) {
  const place = useRef(null), plot = useRef(null), known = useRef(marks), data = useRef(null), inSight = useRef(true);
  const { theme, utc } = useStore("theme", "utc");
  const names = lines.map(([name]) => name).join("\n");
  known.current = marks;
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

const timesOf = (data) => Array.from({ length: data.length }, (_, index) => data.first_ms / 1000 + index * data.step_s);

/** The past of subjects over a range: {data, error}, as of the server. */
export function usePast(name, subjects, since, every) {
  return useLoad(`${where(name, "history")}?since_s=${since}&step_s=${Math.ceil(since / 600)}&subjects=${encodeURIComponent(subjects.join(","))}`, every ?? (since <= 300 ? 3 : 30));
}

function Marks({ marks }) {
  if (!marks.length) return null;
  return html`<details class="marks"><summary>${marks.length} ${marks.length === 1 ? "event" : "events"} in this time, dashed lines in the charts</summary><ol>${marks.slice(-40).reverse().map((one) => html`<li><time>${time(one.at_ms)}</time> ${one.text}</li>`)}</ol></details>`;
}

/** The last figures of components over the range that the address names. */
export function Charts({ name, components, charts = CHARTS, title = "The past" }) {
  const { place, utc } = useStore("place", "utc"), since = Number(place.query.since) || 300;
  const { data, error } = usePast(name, components.map((one) => `component/${one}`), since);
  const lines = (series) => components.flatMap((one) => { const values = data.series[`component/${one}`]?.[series]; return values ? [[one, values]] : []; });
  const shown = (times) => html`<div class="charts">${charts.map(([title, series, form]) => lines(series).length ? html`<${Chart} key=${series} title=${title} form=${form} times=${times} lines=${lines(series)} marks=${data.marks} />` : null)}</div><${Marks} marks=${data.marks} />`;
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
