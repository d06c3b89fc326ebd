// State of the page: the address, the token, the live feed. Components take part by useStore().
import { useEffect, useState } from "preact/hooks";
import { setUtc } from "./format.js";

const state = {
  hello: null, list: null, live: null, connection: "connecting", problem: "", proposed: null, dialog: "",
  theme: localStorage.getItem("topo.theme") || "auto", utc: localStorage.getItem("topo.utc") === "1",
  place: read(),
};
const listeners = new Set();
setUtc(state.utc);

function read() {
  const parts = location.pathname.split("/").filter(Boolean).map(decodeURIComponent);
  const query = Object.fromEntries(new URLSearchParams(location.search));
  if (parts[0] !== "t") return { name: "", page: "list", item: "", query };
  if (parts[2] === "c") return { name: parts[1], page: "component", item: parts[3] || "", query };
  return { name: parts[1] || "", page: parts[2] || "overview", item: parts[3] || "", query };
}

export function change(part) {
  Object.assign(state, part);
  for (const listener of listeners) listener(part);
}

/** The state; draws again when one of these parts changes, or any without names. The feed changes `live` each second. */
export function useStore(...names) {
  const [, draw] = useState(0);
  useEffect(() => {
    const listener = (part) => { if (!names.length || names.some((name) => name in part)) draw((n) => n + 1); };
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return state;
}

export const now = () => state;

// --- the address
export function path(name, ...rest) {
  return name ? `/t/${[name, ...rest].map(encodeURIComponent).join("/")}` : "/";
}

export function go(to) {
  history.pushState(null, "", to);
  moved();
  scrollTo(0, 0);
}

/** Change parts of the query; null removes one. */
export function setQuery(parts) {
  if (Object.entries(parts).every(([name, value]) => (state.place.query[name] ?? "") === (value ?? ""))) return;
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(parts)) value === null || value === "" ? query.delete(name) : query.set(name, value);
  history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : ""));
  change({ place: read() });
  if ("window" in parts) look();
}

function moved() {
  const before = state.place.name;
  const place = read();
  change({ place, live: place.name === before ? state.live : null, proposed: null, dialog: "" });
  look();
}

// --- the token: it comes in the fragment, which is neither sent nor logged
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  localStorage.setItem("topo.token", given);
  history.replaceState(null, "", location.pathname + location.search);
}
const token = () => localStorage.getItem("topo.token") || "";

export function setToken(value) {
  localStorage.setItem("topo.token", value.trim().replace(/^.*#token=/, ""));
  connect();
}

/** Ask the server; raises Error with its sentence. */
export async function ask(where, body, method = body === undefined ? "GET" : "POST") {
  const headers = { Authorization: `Bearer ${token()}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(where, { headers, method, body: body === undefined ? undefined : JSON.stringify(body) });
  const data = await answer.json().catch(() => ({}));
  if (answer.status === 401) change({ connection: "token" });
  if (!answer.ok) throw new Error(data.error || `the server answered ${answer.status}`);
  return data;
}

// --- the live feed: one socket, closed while the tab is hidden
let socket = null;
let wait = 500;
let timer = 0;
let heardAt = 0;
const SILENT_MS = 6000;

function connect() {
  clearTimeout(timer);
  if (socket) { socket.onclose = null; socket.close(); socket = null; }
  if (document.hidden) return;
  if (!token()) { change({ connection: "token" }); return; }
  const opened = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/live`);
  socket = opened;
  heardAt = Date.now();
  opened.onopen = () => { opened.send(JSON.stringify({ token: token() })); look(); };
  opened.onmessage = (event) => heard(JSON.parse(event.data));
  opened.onclose = (event) => {
    socket = null;
    if (event.code === 4401) { change({ connection: "token" }); return; }
    change({ connection: "lost" });
    if (!document.hidden) timer = setTimeout(connect, wait);
    wait = Math.min(10000, wait * 1.6);
  };
}

/** A snapshot, with the last figures there were: a feed that stopped shows them as of then. */
function withFigures(message) {
  const before = state.live;
  return { ...message, figures: message.overview || before?.figures || null, figures_ms: message.overview ? message.at_ms : before?.figures_ms };
}

export const isStale = () => state.connection !== "live" || (state.live !== null && !state.live.overview);

function heard(message) {
  wait = 500;
  heardAt = Date.now();
  if (message.type === "hello") change({ hello: message, connection: "live", problem: "" });
  else if (message.type === "list") change({ list: message, connection: "live", problem: "" });
  else if (message.type === "overview" && message.topology === state.place.name) change({ live: withFigures(message), connection: "live", problem: "" });
  else if (message.type === "error") change({ problem: message.error });
}

function look() {
  if (!socket || socket.readyState !== 1) return;
  const { name, query } = state.place;
  socket.send(JSON.stringify(name ? { look: name, window: query.window || "10s" } : { look: "list" }));
}

export function begin() {
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) connect();
    else { clearTimeout(timer); if (socket) { socket.onclose = null; socket.close(); socket = null; } }
  });
  addEventListener("popstate", moved);
  // A server that stands still says nothing, and closes nothing.
  setInterval(() => { if (state.connection === "live" && !document.hidden && Date.now() - heardAt > SILENT_MS) change({ connection: "lost" }); }, 1000);
  applyTheme();
  connect();
}

// --- theme and clock
export function setTheme(theme) { localStorage.setItem("topo.theme", theme); change({ theme }); applyTheme(); }
function applyTheme() { document.documentElement.dataset.theme = state.theme; }
export function toggleUtc() { localStorage.setItem("topo.utc", state.utc ? "0" : "1"); setUtc(!state.utc); change({ utc: !state.utc }); }

/** Load an address of the API, again each `every` seconds while the tab is visible: {data, error}. */
export function useLoad(where, every = 0) {
  const [loaded, set] = useState({ where: "", data: null, error: "" });
  useEffect(() => {
    let ended = false, next = 0;
    const load = async () => {
      if (!document.hidden && where) {
        try { const data = await ask(where); if (!ended) set({ where, data, error: "" }); }
        catch (error) { if (!ended) set((old) => ({ where, data: old.where === where ? old.data : null, error: error.message })); }
      }
      if (!ended && every) next = setTimeout(load, every * 1000);
    };
    load();
    return () => { ended = true; clearTimeout(next); };
  }, [where, every]);
  return loaded.where === where ? loaded : { data: null, error: "" };
}
