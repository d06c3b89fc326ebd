// Keys and search. A key does nothing while one types, or while a dialog is open.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { PAGES } from "./pages.js";
import { shownOf } from "./parts.js";
import { ask, change, go, now, path, setTheme, toggleUtc, useStore } from "./store.js";

const tabs = () => PAGES.filter((one) => one.title);
const address = (one) => (one.name === "overview" ? path(now().place.name) : path(now().place.name, one.name));

function step(by) {
  const { place } = now(), shown = tabs();
  if (!place.name) return;
  const at = Math.max(0, shown.findIndex((one) => one.name === place.page));
  go(address(shown[(at + by + shown.length) % shown.length]));
}

const KEYS = [
  ["/", "search pages, components and topologies", () => change({ dialog: "search" })],
  ["?", "this list", () => change({ dialog: "help" })],
  ["[", "the page to the left", () => step(-1)],
  ["]", "the page to the right", () => step(1)],
  ["o", "overview of the topology", () => now().place.name && go(path(now().place.name))],
  ["l", "all topologies", () => go("/")],
  ["t", "theme: light or dark", () => setTheme(now().theme === "dark" ? "light" : "dark")],
  ["u", "times in UTC, or local", toggleUtc],
];

export function beginKeys() {
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, select, textarea, [contenteditable]") || document.querySelector("dialog[open]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const found = KEYS.find(([key]) => key === event.key);
    if (found) { event.preventDefault(); found[2](); }
  });
}

/** A dialog that the store names; closing it takes the name back. */
export function Dialog({ name, label, children }) {
  const place = useRef(null), { dialog } = useStore("dialog");
  useEffect(() => {
    if (dialog === name && !place.current.open) { place.current.showModal(); place.current.querySelector(".first").focus(); }
    if (dialog !== name && place.current.open) place.current.close();
  }, [dialog]);
  return html`<dialog ref=${place} class=${name} aria-label=${label} onClose=${() => now().dialog === name && change({ dialog: "" })}>${dialog === name ? children : null}</dialog>`;
}

export function Help() {
  return html`<${Dialog} name="help" label="Keyboard shortcuts"><h2>Keyboard shortcuts</h2><dl class="keys">${KEYS.map(([key, text]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}<div><dt><kbd>Esc</kbd></dt><dd>close a dialog</dd></div></dl>
    <button class="first" onClick=${() => change({ dialog: "" })}>Close</button><//>`;
}

/** Everything that can be gone to. */
function places(name, live, names) {
  const pages = name ? tabs().map((one) => [one.title, "page", address(one)]) : [];
  const components = name ? shownOf(live).map((row) => [row.component, "component", path(name, "c", row.component)]) : [];
  return [...pages, ...components, ...names.map((one) => [one, "topology", path(one)])];
}

function Found() {
  const { place, live } = useStore("place");
  const [text, setText] = useState(""), [at, setAt] = useState(0), [names, setNames] = useState([]);
  useEffect(() => { ask("/api/topologies").then((data) => setNames(data.topologies.map((row) => row.topology || row.name)), () => {}); }, []);
  const all = useMemo(() => places(place.name, live, names), [place.name, live?.figures?.components.length, names]);
  const wanted = text.toLowerCase(), found = all.filter(([title]) => title.toLowerCase().includes(wanted)).slice(0, 12);
  const open = (one) => { change({ dialog: "" }); if (one) go(one[2]); };
  const key = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); setAt(Math.max(0, Math.min(found.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)))); }
    if (event.key === "Enter") { event.preventDefault(); open(found[at]); }
  };
  return html`<input class="big first" role="combobox" aria-label="Search pages, components, topologies" aria-expanded="true" aria-controls="found" aria-activedescendant=${found.length ? `found-${at}` : null} placeholder="Page, component or topology" value=${text}
      onInput=${(event) => { setText(event.target.value); setAt(0); }} onKeyDown=${key} />
    <ul id="found" role="listbox" aria-label="Found">${found.map((one, index) => html`<li id=${`found-${index}`} role="option" aria-selected=${index === at} onClick=${() => open(one)}><span>${one[0]}</span><span class="quiet">${one[1]}</span></li>`)}</ul>
    ${found.length ? null : html`<p class="empty">Nothing has that name.</p>`}`;
}

export const Search = () => html`<${Dialog} name="search" label="Search"><${Found} /><//>`;
