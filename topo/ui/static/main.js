// The page: bar, tabs, status, findings, and the page that the address names.
import { render } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ActionDialog, ActionMenu } from "./actions.js";
import { count, seconds, time } from "./format.js";
import { html } from "./html.js";
import { Help, Search, beginKeys } from "./keys.js";
import { List } from "./list.js";
import { PAGES } from "./pages.js";
import { Findings, Link, Problem, Word, mayAct } from "./parts.js";
import { begin, change, isStale, path, setTheme, setToken, toggleUtc, useStore } from "./store.js";

function Tabs({ name, page }) {
  const place = useRef(null);
  useEffect(() => {
    const here = place.current, shown = here?.querySelector("[aria-current]");
    // Where not all fit, the one that is open is in the middle.
    if (shown) here.scrollLeft = shown.offsetLeft - (here.clientWidth - shown.offsetWidth) / 2;
  }, [page]);
  return html`<nav class="tabs" aria-label="Pages" ref=${place}>${PAGES.filter((one) => one.title).map((one) => html`<${Link} to=${one.name === "overview" ? path(name) : path(name, one.name)} aria-current=${one.name === page ? "page" : null}>${one.title}<//>`)}</nav>`;
}

/** Name, status and its reason; as of when, once figures have stopped. */
function Status({ name, live, connection }) {
  const shown = live?.figures, stale = isStale();
  const facts = shown ? [`up ${seconds(shown.uptime_s)}`, `epoch ${shown.epoch}`, `${count(shown.workers.length)} ${shown.workers.length === 1 ? "worker" : "workers"}`, shown.delivery.replaceAll("_", " ")] : [];
  const word = live && (live.overview?.status || live.word), reason = live && (live.overview?.reason || live.reason);
  return html`<div class="state"><h1>${name}</h1><span role="status"><${Word} word=${connection === "lost" ? "NOT CONNECTED" : word} />${reason ? html` <span class="quiet">${reason}</span>` : null}</span>
    ${facts.map((one) => html`<span class="quiet fact">${one}</span>`)}${stale && live?.figures_ms ? html`<b class="asof">as of ${time(live.figures_ms)}</b>` : null}
    <code class="same-as">topo status ${name}</code></div>`;
}

/** The page itself. One that draws no figures of the feed is drawn again when the topology begins, ends or changes its plan. */
function Shown({ page, name, item, live }) {
  const { utc } = useStore("utc", "theme");
  const plan = (live?.figures?.components || []).map((row) => row.component).join("\n");
  return useMemo(() => html`<${page.View} key=${`${page.name}/${item}`} name=${name} item=${item} live=${live} />`, [page, item, utc, ...(page.isStill ? [live?.running, plan] : [live])]);
}

function Topology({ name, page, item }) {
  const { live, hello, connection } = useStore();
  const shown = PAGES.find((one) => one.name === page);
  return html`<div class="heading"><${Status} name=${name} live=${live} connection=${connection} />${mayAct(hello) ? html`<${ActionMenu} live=${live} />` : null}</div>
    ${live?.overview && live.findings.length ? html`<${Findings} findings=${live.findings} brief=${page !== "overview"} />` : null}
    ${shown ? html`<div class=${isStale() ? "stale" : ""}><${Shown} page=${shown} name=${name} item=${item} live=${live} /></div>` : html`<p class="empty">There is no page ${page}.</p>`}
    <${ActionDialog} name=${name} live=${live} />`;
}

function Token() {
  const [value, set] = useState("");
  return html`<div class="card narrow"><h1>Token</h1><p>Run <code>topo ui --print</code> and open the address that it prints, or paste it here.</p>
    <form class="row" onSubmit=${(event) => { event.preventDefault(); setToken(value); }}><label class="field grow"><span>Address or token</span><input value=${value} onInput=${(event) => set(event.target.value)} /></label><button class="main">Open</button></form></div>`;
}

const THEMES = { auto: "light", light: "dark", dark: "auto" };

function Top({ place, theme, utc }) {
  return html`<header><${Link} to="/" class="home"><svg width="22" height="22" viewBox="0 0 22 22" aria-hidden="true"><path d="M5 6 L17 11 L5 16" /><circle cx="5" cy="6" r="3" /><circle cx="5" cy="16" r="3" /><circle cx="17" cy="11" r="3.4" class="on" /></svg>topo<//>
    <span class="grow"></span>
    <button class="plain" onClick=${() => change({ dialog: "search" })} aria-keyshortcuts="/">Search <kbd>/</kbd></button>
    <button class="plain" onClick=${toggleUtc} aria-label=${utc ? "Times in UTC; show local ones" : "Local times; show UTC"}>${utc ? "UTC" : "local"}</button>
    <button class="plain" onClick=${() => setTheme(THEMES[theme])} aria-label=${`Theme ${theme}; change to ${THEMES[theme]}`}>${{ auto: "◐", light: "☀", dark: "☾" }[theme]} ${theme}</button>
    <button class="plain" onClick=${() => change({ dialog: "help" })} aria-label="Keyboard shortcuts" aria-keyshortcuts="?">?</button></header>
    ${place.name ? html`<${Tabs} name=${place.name} page=${place.page} />` : null}`;
}

function Page() {
  const { place, connection, problem, theme, utc } = useStore();
  useEffect(() => { document.title = place.name ? `${place.name}${place.page === "overview" ? "" : ` ${place.item || place.page}`} · topo` : "topo"; }, [place.name, place.page, place.item]);
  return html`<${Top} place=${connection === "token" ? {} : place} theme=${theme} utc=${utc} />
    <main>${connection === "lost" ? html`<p class="finding slow" role="status">The server does not answer; trying again. Figures are the last there were.</p>` : null}<${Problem} text=${problem} />
    ${connection === "token" ? html`<${Token} />` : place.name ? html`<${Topology} key=${place.name} ...${place} />` : html`<${List} />`}</main><${Search} /><${Help} />`;
}

begin();
beginKeys();
render(html`<${Page} />`, document.getElementById("page"));
