// Latency over time: how many of the messages of each moment took how long.
import { useMemo, useState } from "preact/hooks";
import { Chart, eventsOf, strength, timesOf, usePast } from "./charts.js";
import { count, percent, seconds, time } from "./format.js";
import { html } from "./html.js";
import { Table } from "./parts.js";
import { useStore } from "./store.js";

const KEYS = [0.01, 0.1, 0.5, 1];

/** Rows by doubling, {power of two of its bound, shares}, the slowest first; and the messages of each moment. Null without messages. */
export function heatOf(data, item) {
  const counted = Object.entries(data.series[`latency/${item}`] || {}).map(([name, values]) => ({ power: Number(name.slice(2)), values })).filter(({ values }) => values.some(Boolean));
  if (!counted.length) return null;
  const messages = Array.from({ length: data.length }, (_, index) => counted.reduce((sum, { values }) => sum + (values[index] || 0), 0));
  const rows = counted.map(({ power, values }) => ({ power, shares: values.map((value, index) => (value ? value / messages[index] : 0)) })).sort((one, two) => two.power - one.power);
  return { rows, messages, first: data.first_ms / 1000, step: data.step_s, range: [rows.at(-1).power - 1, rows[0].power] };
}

const upTo = (power) => seconds(2 ** power);

/** What the colours say, in a sentence. */
function words({ rows, messages, first, step }) {
  const all = messages.reduce((sum, one) => sum + one, 0), sums = rows.map(({ power, shares }) => [power, shares.reduce((sum, share, index) => sum + share * messages[index], 0)]);
  const [most, number] = sums.reduce((best, one) => (one[1] > best[1] ? one : best));
  return `${percent(number / all)} of ${count(all)} took ${upTo(most - 1)} to ${upTo(most)}; the slowest up to ${upTo(rows[0].power)}, last at ${time(1000 * (first + step * rows[0].shares.findLastIndex(Boolean)))}.`;
}

function Shares({ rows, messages, first, step }) {
  const moments = messages.map((number, index) => ({ id: index, number })).filter(({ number }) => number).reverse();
  return html`<${Table} label="Share of messages by latency" rows=${moments} columns=${[["from", ({ id }) => time(1000 * (first + id * step))], ["messages", ({ number }) => count(number), true], ...[...rows].reverse().map(({ power, shares }) => [`to ${upTo(power)}`, ({ id }) => (shares[id] ? (shares[id] < 0.005 ? "< 1 %" : percent(shares[id])) : ""), true])]} />`;
}

/** The latencies of a component over the range that the address names; a column is 10 s at least. */
export function Heat({ name, item, what }) {
  const { place, utc } = useStore("place", "utc"), since = Number(place.query.since) || 300, [open, setOpen] = useState(false);
  const { data } = usePast(name, ["checkpoints", `latency/${item}`], since, since <= 300 ? 5 : 30, Math.max(10, Math.ceil(since / 120)));
  return useMemo(() => {
    const heat = data && heatOf(data, item), times = heat && [...timesOf(data), heat.first + data.length * heat.step];
    return heat && html`<section class="heat"><${Chart} title=${`${what}, by share of messages`} form=${upTo} times=${times} lines=${[[item, times.map(() => null)]]} events=${{ ...eventsOf(data, times), heat }} />
      <p class="quiet legend">${KEYS.map((share) => html`<span class="key busy" style=${{ opacity: strength(share) }}></span> ${percent(share)} `)} of the messages of a moment. ${words(heat)}</p>
      <details onToggle=${(event) => setOpen(event.target.open)}><summary>The shares as a table</summary>${open ? html`<${Shares} ...${heat} />` : null}</details></section>`;
  }, [data, item, what, open, utc]);
}
