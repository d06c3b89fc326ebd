// The graph: dagre lays it out once for each plan; figures change in place. Many components are folded (fold.js).
import { useMemo, useState } from "preact/hooks";
import { Graph as Layout, layout } from "dagre";
import { fold, MOST_NODES } from "./fold.js";
import { count, percent, rate, seconds } from "./format.js";
import { html } from "./html.js";
import { go, path, setQuery, useStore } from "./store.js";

const WIDTH = 176, HEIGHT = 78;

function placed(names, edges) {
  const graph = new Layout();
  graph.setGraph({ rankdir: "LR", ranker: "tight-tree", nodesep: 30, ranksep: 112, marginx: 6, marginy: 6 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const name of names) graph.setNode(name, { width: WIDTH, height: HEIGHT });
  for (const edge of edges) if (graph.hasNode(edge.source) && graph.hasNode(edge.target)) graph.setEdge(edge.source, edge.target, {});
  layout(graph);
  return graph;
}

/** A smooth line through the points of an edge. */
function curve(points) {
  const [first, ...rest] = points;
  let d = `M${first.x},${first.y}`, last = first;
  for (const one of rest) { const middle = (last.x + one.x) / 2; d += ` C${middle},${last.y} ${middle},${one.y} ${one.x},${one.y}`; last = one; }
  return d;
}

const wide = (per_s) => 1.5 + Math.min(3.5, Math.log10(1 + (per_s || 0)));
const cut = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);

function Edge({ edge, points }) {
  const middle = points[points.length >> 1], waits = edge.in_front >= Math.max(10, 0.2 * (edge.per_s || 0)), full = edge.full > 0.2 || (waits && edge.in_front > 100);
  const shows = full || waits, words = `${edge.source} to ${edge.target}: ${rate(edge.per_s)} a second, ${count(edge.in_front)} in front, full ${percent(edge.full)} of the time`;
  return html`<g class=${full ? "edge full" : "edge"}><title>${words}</title><path d=${curve(points)} stroke-width=${wide(edge.per_s)} marker-end=${full ? "url(#tip-full)" : "url(#tip)"} />
    <text x=${middle.x} y=${middle.y - 8}>${rate(edge.per_s)}/s</text>${shows ? html`<text class="wait" x=${middle.x} y=${middle.y + 16}>${count(edge.in_front)} in front</text>` : null}</g>`;
}

function Node({ row, at, open, hot }) {
  const left = at.x - WIDTH / 2, top = at.y - HEIGHT / 2, inner = WIDTH - 24, busy = Math.min(1, row.busy || 0), held = Math.min(1 - busy, row.backpressured || 0);
  const latency = (row.execute_s || row.complete_s)?.p99, out = row.kind === "spout" || !row.in_per_s ? row.out_per_s : row.in_per_s;
  const second = row.folded ? `${row.folded.length} components` : `${rate(out)}/s · ${seconds(latency)}`;
  const words = row.folded ? `${row.component}, ${row.folded.length} components, capacity ${percent(row.capacity)}; unfold` : `${row.component}, ${row.kind}, ${row.parallelism} tasks, ${rate(out)} a second, capacity ${percent(row.capacity)}, p99 ${seconds(latency)}`;
  const key = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } };
  return html`<g class=${`node ${row.kind} ${hot || ""}`} role="link" tabindex="0" onClick=${open} onKeyDown=${key}><title>${words}</title>
    <rect class="box" x=${left} y=${top} width=${WIDTH} height=${HEIGHT} rx=${row.kind === "spout" ? HEIGHT / 2.6 : 9} />
    <text class="name" x=${left + (row.kind === "spout" ? 20 : 12)} y=${top + 24}>${cut(row.component, row.kind === "spout" ? 14 : 16)}</text><text class="tasks" x=${left + WIDTH - (row.kind === "spout" ? 20 : 12)} y=${top + 24}>×${row.parallelism}</text>
    <text x=${left + (row.kind === "spout" ? 20 : 12)} y=${top + 45}>${second}</text><text class=${row.capacity >= 0.8 ? "tasks much" : "tasks"} x=${left + WIDTH - (row.kind === "spout" ? 20 : 12)} y=${top + 45}>${percent(row.capacity)}</text>
    <rect class="idle" x=${left + 12} y=${top + 58} width=${inner} height="6" rx="3" /><rect class="busy" x=${left + 12} y=${top + 58} width=${inner * busy} height="6" rx="3" /><rect class="held" x=${left + 12 + inner * busy} y=${top + 58} width=${inner * held} height="6" rx="3" /></g>`;
}

function Folding({ total, groups }) {
  const { query } = useStore("place").place;
  return html`<div class="row filters"><span class="quiet">${total} components, folded by the beginning of their names.</span>
    ${query.near ? html`<button onClick=${() => setQuery({ near: null })}>All of them</button>` : null}
    ${query.open ? html`<button onClick=${() => setQuery({ open: null })}>Fold ${query.open}</button>` : null}
    <label class="field"><span>Around</span><input list="near" value=${query.near || ""} placeholder="a component" onChange=${(event) => setQuery({ near: event.target.value })} /></label>
    <datalist id="near">${groups.map((one) => html`<option value=${one} />`)}</datalist></div>`;
}

export function Graph({ name, components, edges, hot }) {
  const { query } = useStore("place").place;
  const shown = components.length > MOST_NODES ? fold(components, edges, query.open || "", query.near || "") : { rows: components, edges };
  const names = shown.rows.map((row) => row.component), plan = JSON.stringify([names, shown.edges.map((edge) => [edge.source, edge.target])]);
  const graph = useMemo(() => placed(names, shown.edges), [plan]);
  const { width, height } = graph.graph();
  return html`${components.length > MOST_NODES ? html`<${Folding} total=${components.length} groups=${components.map((row) => row.component)} />` : null}
    <div class="graph" tabindex="0" role="region" aria-label="Graph; the table below has the same figures"><svg width=${width} height=${height} style=${{ "--wide": `${width}px` }} viewBox=${`0 0 ${width} ${height}`} role="group" aria-label="Components and edges">
    <defs>${["tip", "tip-full"].map((one) => html`<marker id=${one} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L8,4 L0,8 z" /></marker>`)}</defs>
    ${shown.edges.filter((edge) => graph.hasEdge(edge.source, edge.target)).map((edge) => html`<${Edge} key=${`${edge.source}>${edge.target}`} edge=${edge} points=${graph.edge(edge.source, edge.target).points} />`)}
    ${shown.rows.map((row) => html`<${Node} key=${row.component} row=${row} at=${graph.node(row.component)} hot=${hot?.get(row.component)} open=${() => (row.folded ? setQuery({ open: row.component }) : go(path(name, "c", row.component)))} />`)}</svg></div>
    <p class="quiet legend"><span class="key busy"></span> busy <span class="key held"></span> held back <span class="key idle"></span> idle · an edge is as wide as its rate, dashed where tuples queue</p>`;
}

