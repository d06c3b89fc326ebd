// Flame graphs: stacks as a tree, and the tree as rows of buttons. The tree is pure.
import { useState } from "preact/hooks";
import { html } from "./html.js";

const LEAST = 0.002;
const HIGH = 22;

/** Frames are "function (file:line)". */
export function place(frame) {
  const found = /^(.*) \((.*):(\d+)\)$/.exec(frame);
  return found ? { name: found[1], file: found[2], line: found[3] } : { name: frame, file: "", line: "" };
}

/** A test of frames for code that is yours: not of topo, Python, or a library. The engine's folder is known by its own frames. */
export function yours(stacks) {
  const roots = new Set();
  for (const { frames } of stacks) for (const frame of frames) { const found = /^.* \((.*\/topo\/)(worker|task)\/[^/]+\.py:\d+\)$/.exec(frame); if (found) roots.add(found[1]); }
  return (frame) => { const { file } = place(frame); return file !== "" && !file.startsWith("<") && ![...roots].some((root) => file.startsWith(root)) && !/\/(site|dist)-packages\/|\/lib\/python3|\.pyx$|\.so$/.test(file); };
}

/** Stacks as a tree of {frame, count, children}; frames that `keeps` refuses are left out, and their time is their caller's. */
export function tree(stacks, keeps = () => true) {
  const root = { frame: "all", count: 0, children: new Map() };
  for (const { frames, count } of stacks) {
    let at = root;
    root.count += count;
    for (const frame of frames) {
      if (!keeps(frame)) continue;
      if (!at.children.has(frame)) at.children.set(frame, { frame, count: 0, children: new Map() });
      at = at.children.get(frame);
      at.count += count;
    }
  }
  return root;
}

/** Boxes of a tree: [node, depth, left, width], as shares of the root; those too small to see are left out. */
export function boxes(root) {
  const found = [];
  const walk = (node, depth, left) => {
    found.push([node, depth, left, node.count / root.count]);
    let at = left;
    for (const child of [...node.children.values()].sort((one, two) => two.count - one.count)) {
      if (child.count / root.count >= LEAST) walk(child, depth + 1, at);
      at += child.count / root.count;
    }
  };
  if (root.count) walk(root, 0, 0);
  return found;
}

export function Flame({ root, isYours }) {
  const [path, setPath] = useState([]);
  let shown = root;
  for (const frame of path) shown = shown.children.get(frame) || shown;
  const all = boxes(shown), deep = Math.max(0, ...all.map(([, depth]) => depth)) + 1, percent = (count) => `${((100 * count) / root.count).toFixed(1)} %`;
  const ways = new Map();
  const note = (node, way) => { ways.set(node, way); for (const child of node.children.values()) note(child, [...way, child.frame]); };
  note(root, []);
  return html`<div class="flame" style=${{ height: `${deep * HIGH}px` }} role="group" aria-label="Flame graph; a click shows a function alone">${all.map(([node, depth, left, width]) => {
    const { name, file, line } = place(node.frame), words = `${name}, ${percent(node.count)}${file ? `, ${file}:${line}` : ""}`;
    return html`<button key=${`${depth} ${left} ${node.frame}`} class=${node === root ? "root" : isYours(node.frame) ? "yours" : "others"} style=${{ top: `${depth * HIGH}px`, left: `${100 * left}%`, width: `${100 * width}%` }} title=${words} aria-label=${words} onClick=${() => setPath(node === shown ? path.slice(0, -1) : ways.get(node))}>${width > 0.03 ? name.split(".").slice(-2).join(".") : ""}</button>`;
  })}</div>${path.length ? html`<p><button onClick=${() => setPath([])}>All of it</button></p>` : null}`;
}
