// One client: its types, its resources with their origins, and the difference from now.

import { bytes, facts, h, objectLink, state, swap, table, time } from "./dom.js";
import { refusals } from "./fleet.js";
import { list } from "./list.js";

export const topics = ["fleet", "config"];
export const title = (app) => `Proxy ${app.parts[0]}`;

function difference(d) {
  if (!d) return "✓ none";
  const part = (word, of) => (of.total ? h("li", {}, `${of.total} ${word}: ${of.names.join(", ")}${of.total > of.names.length ? ", …" : ""}`) : null);
  return h("ul", {}, part("to be added", d.added), part("to be changed", d.changed), part("to be removed", d.removed));
}

function shown(p, choose) {
  const d = p.described;
  return [
    facts([
      ["State", state(p.standing)], ["Kind", `${p.kind}, ${p.protocol}`], ["Namespace", p.namespace], ["Address", p.address],
      ["Identity", p.identity ? `${p.identity}${p.isProven ? "" : " (claimed, not proven)"}` : "none"],
      ["Locality", p.locality], ["Version", p.version], ["Connected", time(p.connectedAt)],
      ["Labels", Object.entries(p.labels).map(([k, v]) => `${k}=${v}`).join(", ")],
      ["Sidecar", d?.sidecar ? h("span", {}, `${d.sidecar.name} `, h("span", { class: "place" }, d.sidecar.place)) : ""],
      ["Services", d?.services.length ? h("ul", {}, d.services.map((s) => h("li", {}, `${s.host}:${s.port} `, state(s.mutualTls)))) : ""],
      ["Policies", d ? h("ul", {}, [...d.policies.mutualTls.peerAuthentications, ...d.policies.authorizationPolicies, ...d.policies.requestAuthentications]
        .map((x) => h("li", {}, `${x.kind} ${x.name} `, h("span", { class: "place" }, x.place)))) : ""],
    ]),
    p.refusals.length ? [h("h2", {}, "Refused"), refusals(p.refusals)] : null,
    p.leftOut.length ? [h("h2", {}, "Left out"), h("ul", {}, p.leftOut.map((o) => h("li", {}, h("code", {}, o.resource), `: ${o.message} `, objectLink(o.object))))] : null,
    h("h2", {}, "Types"),
    table("Types", [
      { title: "Type", cell: (t) => h("button", { type: "button", id: `type-${t.type}`, onclick: () => choose(t.type) }, t.type) },
      { title: "State", cell: (t) => state(t.state) },
      { title: "Resources", numeric: true, cell: (t) => String(t.resources) },
      { title: "Last answer", cell: (t) => [bytes(t.bytes), t.sentAt ? [", ", time(t.sentAt)] : ""] },
      { title: "Refused answers", numeric: true, cell: (t) => String(t.rejects) },
      { title: "Asked for, do not exist", cell: (t) => t.missing.join(", ") || "–" },
      { title: "Differs from now", cell: (t) => difference(t.difference) },
    ], p.types, "It asks for nothing."),
  ];
}

function oneResource(r, back) {
  return h("section", { class: "resource", "aria-labelledby": "resource-title" },
    h("h3", { id: "resource-title", tabindex: "-1" }, `${r.type} ${r.name}`),
    h("p", {}, `version ${r.version}, ${bytes(r.bytes)} `, h("button", { type: "button", onclick: back }, "Close")),
    r.origin ? h("p", {}, "Made from ", objectLink(r.origin)) : null,
    r.objects.total ? h("p", {}, "Names ", r.objects.rows.map((o, i) => [i ? ", " : "", objectLink(o)]), r.objects.total > r.objects.rows.length ? `, and ${r.objects.total - r.objects.rows.length} more` : "") : null,
    h("p", { id: "difference" }, r.difference === null ? "✓ As the configuration in force makes it." : "✗ Differs from what the configuration in force makes:"),
    r.difference === null ? null : h("pre", { class: "diff", tabindex: "0" }, r.difference.split("\n").map((line) => h("span", { class: line[0] === "+" ? "added" : line[0] === "-" ? "removed" : "" }, `${line}\n`))),
    h("pre", { tabindex: "0" }, r.text));
}

export function build(app) {
  const id = app.parts[0];
  const about = h("div", {});
  const resources = h("div", { id: "resources" });
  const one = h("div", { id: "resource" });
  let chosen = null;
  async function open(type, name) {
    const r = await app.ask("resource", { id, type, name });
    swap(one, oneResource(r, () => one.replaceChildren()));
    document.getElementById("resource-title").focus();
  }
  function choose(type) {
    one.replaceChildren();
    chosen = list({
      app, page: "resources", caption: `${type} resources`, fixed: { id, type }, search: `Search ${type} by name`,
      columns: [
        { title: "Resource", cell: (r) => h("button", { type: "button", class: "name", onclick: () => open(type, r.name).catch(app.failed) }, r.name || "(no name)") },
        { title: "Content", cell: (r) => r.line },
        { title: "Origin", cell: (r) => (r.origin ? objectLink(r.origin) : r.objects.rows.map((o, i) => [i ? ", " : "", objectLink(o)])) },
        { title: "Size", numeric: true, cell: (r) => bytes(r.bytes) },
        { title: "Version", cell: (r) => h("code", {}, r.version) },
      ],
    });
    swap(resources, h("h2", {}, `${type} resources`), chosen.element);
    chosen.refresh().catch(app.failed);
  }
  async function refresh() {
    const p = await app.ask("proxy", { id });
    swap(about, shown(p, choose));
    if (chosen) await chosen.refresh();
    else if (p.types.length) choose(p.types[0].type);
  }
  return { element: h("div", {}, about, resources, one), refresh };
}
