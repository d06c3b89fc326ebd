// Each setting and where it comes from, the parameters, and the code.
import { text, time } from "./format.js";
import { html } from "./html.js";
import { Choice, Field, Problem, Table, where } from "./parts.js";
import { useLoad, useStore } from "./store.js";

const same = (one, two) => JSON.stringify(one) === JSON.stringify(two);

function Facts({ title, facts }) {
  const rows = Object.entries(facts || {}).map(([name, value]) => ({ name, value }));
  return rows.length ? html`<h3>${title}</h3><${Table} label=${title} rows=${rows} columns=${[["name", (row) => row.name], ["value", (row) => html`<code>${text(row.value)}</code>`]]} />` : null;
}

function Settings({ name }) {
  const { data, error } = useLoad(where(name, "settings"), 0), { query } = useStore("place").place, wanted = (query.text || "").toLowerCase();
  const rows = (data?.settings || []).filter((row) => row.name.includes(wanted) && (query.show !== "changed" || row.given || !same(row.value, row.default)));
  const origin = (row) => (row.given ? "the submit" : same(row.value, row.default) ? "default" : "the code");
  return html`<div class="title"><h2>Settings</h2><span class="row"><${Choice} name="show" label="Show" options=${[["all", "all"], ["changed", "changed ones"]]} /><${Field} name="text" label="Name" placeholder="a part of it" /></span></div><${Problem} text=${error} />
    ${data ? html`<${Table} label="Settings" rows=${rows} empty="No setting is like that." picked=${(row) => origin(row) !== "default"} columns=${[["setting", (row) => html`<code>${row.name}</code>`], ["value", (row) => html`<b>${text(row.value)}</b>`], ["from", origin], ["default", (row) => html`<span class="quiet">${text(row.default)}</span>`]]} />
      <${Facts} title="Parameters" facts=${data.parameters} /><${Facts} title="Tasks given at the submit" facts=${data.parallelism} /><${Facts} title="Code" facts=${{ ...data.code, submitted: time(data.submitted_ms), ...(data.spark ? { spark: data.spark.master } : {}) }} />` : null}`;
}

export default { name: "settings", title: "settings", isStill: true, View: Settings };
