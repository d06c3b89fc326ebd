// Where the time of a component goes: samples of its stacks, as a flame graph.
import { useMemo, useState } from "preact/hooks";
import { Flame, place, tree, yours } from "./flame.js";
import { count, percent } from "./format.js";
import { html } from "./html.js";
import { Choice, Command, Table, WatchForm, left, mayAct, save, shownOf, useWatch } from "./parts.js";
import { setQuery, useStore } from "./store.js";

const RATE = 100;
const share = (value) => `${(100 * value).toFixed(1)} %`;

/** Functions by their own samples, with those of what they call. */
function functions(stacks) {
  const all = stacks.reduce((sum, one) => sum + one.count, 0);
  const own = new Map(), whole = new Map();
  for (const { frames, count } of stacks) {
    const last = frames.at(-1);
    own.set(last, (own.get(last) || 0) + count);
    for (const frame of new Set(frames)) whole.set(frame, (whole.get(frame) || 0) + count);
  }
  return [...whole].map(([frame, total]) => ({ frame, own: own.get(frame) || 0, total })).filter((row) => row.own >= 0.001 * all).sort((one, two) => two.own - one.own || two.total - one.total);
}

/** Stacks in the file format of speedscope, with a profile for each task, as `topo profile -o` writes them. */
function speedscope(title, stacks, rate) {
  const places = new Map(), at = (frame) => { if (!places.has(frame)) places.set(frame, places.size); return places.get(frame); };
  const profiles = [...new Set(stacks.map((one) => one.index))].sort((one, two) => one - two).map((index) => {
    const own = stacks.filter((one) => one.index === index), weights = own.map((one) => one.count / rate);
    return { type: "sampled", name: `${title}[${index}]`, unit: "seconds", startValue: 0, endValue: weights.reduce((sum, one) => sum + one, 0), samples: own.map((one) => one.frames.map(at)), weights };
  });
  return { $schema: "https://www.speedscope.app/file-format-schema.json", shared: { frames: [...places.keys()].map((name) => ({ name })) }, profiles, name: title, exporter: "topo" };
}

function Result({ answer, query, title }) {
  const stacks = useMemo(() => answer.stacks.filter((one) => query.task === undefined || String(one.index) === query.task), [answer, query.task]);
  const isYours = useMemo(() => yours(answer.stacks), [answer]), onlyYours = query.code !== "all";
  const root = useMemo(() => tree(stacks, onlyYours ? isYours : undefined), [stacks, onlyYours]);
  const tasks = [...new Set(answer.stacks.map((one) => one.index))].sort((one, two) => one - two), total = stacks.reduce((sum, one) => sum + one.count, 0) || 1;
  const shares = tasks.map((index) => [index, answer.stacks.filter((one) => one.index === index).reduce((sum, one) => sum + one.count, 0)]);
  return html`<p role="status" class="quiet">${count(answer.matched)} samples at work, ${percent(answer.seen ? answer.matched / answer.seen : null)} of those of its workers · ${left(answer)}${answer.problem ? html` · <b>${answer.problem}</b>` : null}</p>
    <div class="row filters"><span class="row chips" role="group" aria-label="Code">${[["yours", "your code"], ["all", "all"]].map(([value, title]) => html`<button aria-pressed=${(query.code || "yours") === value} onClick=${() => setQuery({ code: value === "yours" ? null : value })}>${title}</button>`)}</span>
      <span class="row chips" role="group" aria-label="Tasks"><button aria-pressed=${query.task === undefined} onClick=${() => setQuery({ task: null })}>all tasks</button>${shares.map(([index, number]) => html`<button aria-pressed=${query.task === String(index)} onClick=${() => setQuery({ task: String(index) })}>[${index}] ${count(number)}</button>`)}</span>
      <span class="grow"></span><button disabled=${!answer.stacks.length} onClick=${() => save(`${title.replace(" ", "-")}.speedscope.json`, speedscope(title, answer.stacks, RATE))}>Save for speedscope</button></div>
    ${root.count ? html`<section class="card"><${Flame} key=${`${query.task} ${onlyYours}`} root=${root} isYours=${isYours} /><p class="quiet legend"><span class="key yours"></span> your code <span class="key others"></span> topo and libraries · wide is long; what is called is below its caller</p></section>
    <h3>Functions</h3><${Table} label="Functions" rows=${functions(stacks).slice(0, 25)} columns=${[["self", (row) => share(row.own / total), true], ["with calls", (row) => share(row.total / total), true], ["function", (row) => html`<span class=${isYours(row.frame) ? "strong" : "quiet"}>${place(row.frame).name}</span>`], ["file", (row) => html`<code>${place(row.frame).file}:${place(row.frame).line}</code>`]]} />` : html`<p class="empty">No sample yet: no task of it was at work.</p>`}`;
}

function Profile({ name, live }) {
  const { place: { query }, hello } = useStore("place", "hello"), watching = useWatch(name), [answer, setAnswer] = useState(null);
  const components = shownOf(live).map((row) => row.component), component = query.component || components[0] || "", seconds = Number(query.seconds) || 10;
  const start = () => {
    setAnswer(null);
    watching.start({ kind: "profile", component, for_s: seconds, clock: query.clock || "wall", rate: RATE }, setAnswer);
  };
  if (hello && !mayAct(hello)) return html`<h2>Profile</h2><p class="empty">This page is for viewers: it profiles nothing.</p>`;
  return html`<h2>Profile</h2><${WatchForm} watching=${watching} live=${live} start=${start}><${Choice} name="component" label="Component" options=${components} /><${Choice} name="seconds" label="For" options=${[["10", "10 s"], ["30", "30 s"], ["120", "2 min"]]} /><${Choice} name="clock" label="Time" options=${[["wall", "wall clock"], ["cpu", "processor"]]} /><//>
    ${answer ? html`<${Result} answer=${answer} query=${query} title=${`${name} ${component}`} />` : watching.runs ? html`<p class="empty" role="status">Sampling.</p>` : html`<p class="empty">A timer in the workers takes 100 samples a second of the stacks of this component's tasks. It needs no restart and no rights.</p>`}<${Command}>topo profile ${name} ${component} --seconds ${seconds}${query.clock === "cpu" ? " --clock cpu" : ""} -o ${component || "profile"}.speedscope.json<//>`;
}

export default { name: "profile", title: "profile", isStill: true, View: Profile };
