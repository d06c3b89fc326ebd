// Graphs of many components: groups of those whose names begin alike, or the neighbourhood of one. Pure.

export const MOST_NODES = 60;
const NEAR = 2;

/** The part of a name that a group is called by: up to its last separator but one digit run. */
const start = (name, parts) => name.split(/(?<=[-_./: ])/).slice(0, parts).join("").replace(/[-_./: ]+$/, "") || name;

/** Names by group, with as many parts of names as still leave few groups. */
export function prefixes(names) {
  const grouped = (key) => { const groups = new Map(); for (const name of names) { const at = key(name); groups.set(at, [...(groups.get(at) || []), name]); } return groups; };
  for (const parts of [3, 2, 1]) { const groups = grouped((name) => start(name, parts)); if (groups.size <= MOST_NODES) return groups; }
  const short = grouped((name) => name.replace(/\d+.*$/, "") || name);
  return short.size <= MOST_NODES ? short : grouped((name) => name[0]);
}

function near(names, edges, name) {
  let found = new Set([name]);
  for (let step = 0; step < NEAR; step += 1) {
    const next = new Set(found);
    for (const edge of edges) { if (found.has(edge.source)) next.add(edge.target); if (found.has(edge.target)) next.add(edge.source); }
    found = next;
    if (found.size > MOST_NODES) break;
  }
  return found;
}

/** Components and edges as they are drawn. A group has the greatest capacity of its components, and the sums of its edges. */
export function fold(rows, edges, open, around) {
  if (around && rows.some((row) => row.component === around)) {
    const kept = near(rows, edges, around);
    return { rows: rows.filter((row) => kept.has(row.component)), edges: edges.filter((edge) => kept.has(edge.source) && kept.has(edge.target)) };
  }
  const groups = prefixes(rows.map((row) => row.component)), at = new Map(), by = new Map(rows.map((row) => [row.component, row]));
  const shown = [];
  for (const [name, members] of groups) {
    if (members.length === 1 || name === open) { for (const one of members) { at.set(one, one); shown.push(by.get(one)); } continue; }
    const all = members.map((one) => by.get(one)), hottest = all.reduce((one, two) => ((two.capacity || 0) > (one.capacity || 0) ? two : one));
    for (const one of members) at.set(one, name);
    shown.push({ component: name, kind: all.every((row) => row.kind === "spout") ? "spout" : "bolt", parallelism: members.length, folded: members, capacity: hottest.capacity, busy: hottest.busy, backpressured: hottest.backpressured });
  }
  const joined = new Map();
  for (const edge of edges) {
    const source = at.get(edge.source), target = at.get(edge.target);
    if (!source || !target || source === target) continue;
    const known = joined.get(`${source}>${target}`);
    if (known) { known.per_s += edge.per_s || 0; known.in_front += edge.in_front || 0; known.full = Math.max(known.full, edge.full || 0); }
    else joined.set(`${source}>${target}`, { ...edge, source, target });
  }
  return { rows: shown, edges: [...joined.values()] };
}
