// Single messages on their way through all components, tuple by tuple. Who leaves the page ends the trace.
import { useState } from "preact/hooks";
import { count, percent, seconds, text, time } from "./format.js";
import { html } from "./html.js";
import { Choice, Command, Link, Table, WatchForm, mayAct, save, shownOf, useWatch } from "./parts.js";
import { path, useStore } from "./store.js";

const MOST = 200, NEWEST = 50;
const SETTLE_S = 10;
const PHASES = [["on the way", "sent_us", "arrived_us", "way"], ["in front", "arrived_us", "began_us", "front"], ["executing", "began_us", "ended_us", "work"]];
const slowest = (one, two) => two.took_us - one.took_us;
const shown = (us) => seconds(Math.max(0, us) / 1e6);
const titleOf = (message) => `${message.component}[${message.index}]${message.message === null ? "" : ` ${text(message.message)}`}`;

/** The newest and the slowest messages, the newest first. */
function kept(messages) {
  if (messages.length <= MOST) return messages;
  const slow = new Set([...messages].sort(slowest).slice(0, MOST - NEWEST));
  return messages.filter((one, place) => place < NEWEST || slow.has(one));
}

function longest(message) {
  const part = message.path.reduce((most, one) => (one.us > most.us ? one : most));
  return `${part.phase === "acks" ? "until the verdict" : `${part.phase} ${part.component}`}, ${shown(part.us)}`;
}

function Tuple({ name, span, share }) {
  const parts = PHASES.filter(([, , end]) => end in span), words = parts.map(([title, begin, end]) => `${title} ${shown(span[end] - span[begin])}`).join(", ") || "not seen";
  return html`<li class=${span.on_path ? "strong" : ""} aria-level=${span.depth}><span class="who" style=${{ paddingLeft: `${12 * Math.min(8, span.depth - 1)}px` }}><${Link} to=${path(name, "c", span.component)}>${span.component}[${span.index}]<//></span>
    <span class="track" aria-hidden="true">${parts.map(([, begin, end, kind]) => html`<i class=${kind} style=${share(span[begin], span[end])}></i>`)}</span>
    <span class="what">${words}${span.outcome && span.outcome !== "acked" ? html` · <b class="much">${span.outcome}</b>` : null}</span></li>`;
}

function Waterfall({ name, message }) {
  const left = message.tuples - message.spans.length, rest = message.path.at(-1).us, end = message.at_us + message.took_us;
  const at = (us) => Math.max(0, Math.min(100, (100 * (us - message.at_us)) / Math.max(1, message.took_us)));
  const share = (begin, end) => ({ left: `${at(begin)}%`, width: `${at(end) - at(begin)}%` });
  return html`<section class="card" aria-label="Waterfall"><h3>${titleOf(message)}: ${message.outcome} after ${shown(message.took_us)}, ${count(message.tuples)} ${message.tuples === 1 ? "tuple" : "tuples"}</h3>
    <p class="quiet legend"><span class="key way"></span> on the way <span class="key front"></span> waiting in front <span class="key work"></span> executing, or held · bold tuples decide how long it took</p>
    <div class="scale trace-scale" aria-hidden="true"><span>${time(message.at_us / 1000)}</span><span>${shown(message.took_us)}</span></div>
    <ol class="gantt trace" aria-label="Tuples, each below the one it was emitted for">${message.spans.map((span) => html`<${Tuple} key=${span.id} name=${name} span=${span} share=${share} />`)}
      <li aria-level="1"><span class="who quiet">acks, windows</span><span class="track" aria-hidden="true"><i class="rest" style=${share(end - rest, end)}></i></span><span class="what">until the verdict ${shown(rest)}</span></li></ol>${left ? html`<p class="quiet">${count(left)} more are not shown.</p>` : null}</section>`;
}

/** Where the time of these messages went: of the tuple that ended last, and of those that it descends from. */
function Where({ messages }) {
  const rows = new Map();
  let whole = 0;
  for (const { component, phase, us } of messages.flatMap((one) => one.path)) {
    const title = phase === "acks" ? "acks, windows" : component, row = rows.get(title) || { title, all: 0 };
    rows.set(title, row);
    row[phase] = (row[phase] || 0) + us; row.all += us; whole += us;
  }
  const mean = (phase) => [phase === "acks" ? "until the verdict" : phase, (row) => (row[phase] ? shown(row[phase] / messages.length) : "–"), true];
  return html`<h3>Where the time went, mean of ${count(messages.length)} ${messages.length === 1 ? "message" : "messages"}</h3><${Table} label="Where the time went" rows=${[...rows.values()].sort((one, two) => two.all - one.all)} columns=${[["component", (row) => row.title], ...["on the way", "in front", "executing", "acks"].map(mean), ["share", (row) => percent(row.all / whole), true]]} />`;
}

function Counts({ answer, total, runs }) {
  const lost = [[answer.open, "without a verdict"], [answer.forgotten, "of the quickest not kept"], [answer.dropped, "tuples too many to follow"]].filter(([number]) => number).map(([number, words]) => `; ${count(number)} ${words}`);
  const left = answer.left_s > SETTLE_S ? `${seconds(answer.left_s - SETTLE_S)} left` : "waiting for the last verdicts";
  return html`<p role="status" class="quiet">${count(answer.matched)} of ${count(answer.seen)} messages traced${lost}${total > MOST ? `; the slowest and newest ${MOST} of ${count(total)} are kept` : ""} · ${runs ? left : "ended"}${answer.problem ? html` · <b>${answer.problem}</b>` : null}</p>`;
}

function Trace({ name, live }) {
  const { place: { query }, hello } = useStore("place", "hello"), watching = useWatch(name), [seen, setSeen] = useState(null), [chosen, choose] = useState("");
  const spouts = shownOf(live).filter((row) => row.kind === "spout").map((row) => row.component), rate = Number(query.rate) || 1, length = Number(query.for) || 30;
  const start = () => {
    let messages = [], total = 0;
    setSeen(null); choose("");
    watching.start({ kind: "trace", spout: query.spout || "", rate, for_s: length + SETTLE_S, settle_s: SETTLE_S }, (answer) => {
      total += answer.messages.length;
      messages = kept([...answer.messages.reverse(), ...messages]);
      setSeen({ answer, messages, total });
    });
  };
  if (hello && !mayAct(hello)) return html`<h2>Trace</h2><p class="empty">This page is for viewers: it follows no messages.</p>`;
  const messages = seen?.messages || [], bySlowest = [...messages].sort(slowest), message = messages.find((one) => one.root === chosen) || bySlowest[0];
  return html`<h2>Trace</h2><${WatchForm} watching=${watching} live=${live} start=${start}><${Choice} name="spout" label="Messages of" options=${[["", "all spouts"], ...spouts]} /><${Choice} name="rate" label="A second" options=${["1", "5", "20"]} /><${Choice} name="for" label="For" options=${[["30", "30 s"], ["120", "2 min"], ["600", "10 min"]]} /><//>
    ${seen ? html`<${Counts} answer=${seen.answer} total=${seen.total} runs=${watching.runs} />${message ? html`<${Waterfall} name=${name} message=${message} />
      <${Where} messages=${messages} />
      <div class="title"><h3>Messages</h3><span class="row"><${Choice} name="order" label="Order" options=${[["slowest", "slowest first"], ["newest", "newest first"]]} /><button onClick=${() => save(`${name}-messages.json`, messages)}>Export JSON</button></span></div>
      <${Table} label="Messages" rows=${(query.order === "newest" ? messages : bySlowest).map((one) => ({ ...one, id: one.root }))} picked=${(row) => row.root === message.root} columns=${[["message", (row) => html`<button class="choose" aria-pressed=${row.root === message.root} onClick=${() => choose(row.root)}>${titleOf(row)}</button>`], ["took", (row) => shown(row.took_us), true], ["tuples", (row) => count(row.tuples), true], ["outcome", (row) => html`<span class=${row.outcome === "acked" ? "" : "much"}>${row.outcome}</span>`], ["longest", longest], ["emitted", (row) => time(row.at_us / 1000)]]} />` : html`<p class="empty">No message has its verdict yet.</p>`}` : watching.runs ? html`<p class="empty" role="status">Waiting for messages.</p>` : html`<p class="empty">A trace marks a few messages a second at their spout, and follows every tuple that descends from them. Nothing has to be prepared.</p>`}<${Command}>topo trace ${name}${query.spout ? ` --spout ${query.spout}` : ""} --rate ${rate}/s --for ${length}s<//>`;
}

export default { name: "trace", title: "trace", isStill: true, View: Trace };
