// One object: its text with what is wrong at its line, what it made, who holds it.

import { facts, h, links, objectLink, state, swap, table } from "./dom.js";

export const topics = ["config", "fleet", "sources"];
export const title = (app) => `${app.parts[0]} ${app.parts[2] ?? ""}`;

const LONGEST = 4000;

function problemText(p) {
  return [state(p.level), " ", p.code ? h("code", {}, p.code) : "", p.code ? " " : "", p.message, p.wayOut ? h("div", { class: "way-out" }, p.wayOut) : ""];
}

// The text with line numbers; a problem stands below its line.
function source(text, problems) {
  const lines = text.text.replace(/\n$/, "").split("\n");
  const at = new Map();
  for (const problem of problems) {
    const line = Math.min(Math.max(problem.line || text.first, text.first), text.first + lines.length - 1);
    at.set(line, [...(at.get(line) ?? []), problem]);
  }
  const rows = lines.slice(0, LONGEST).flatMap((line, i) => {
    const number = text.first + i;
    const wrong = at.get(number);
    const row = h("li", { class: wrong ? "wrong" : null, id: `line-${number}`, value: number }, h("code", {}, line || " "));
    return wrong ? [row, h("li", { class: "problems", value: number }, wrong.map((p) => h("p", {}, problemText(p))))] : [row];
  });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Text" }, h("ol", { class: "source", start: text.first }, rows));
}

function shown(o) {
  const distribution = (o.status?.status?.conditions ?? o.status?.conditions ?? []).map((c) => `${c.type} ${c.status}: ${c.message ?? c.reason ?? ""}`);
  return [
    facts([
      ["In force", o.inForce ? "✓ yes" : "✗ no: the document is refused; an earlier version may be"],
      ["Namespace", o.namespace || "–"], ["Place", o.place], ["Source", o.source],
      ["Status", distribution.length ? h("ul", {}, distribution.map((text) => h("li", {}, text))) : ""],
    ]),
    h("h2", {}, o.problems.length ? `Text, with ${o.problems.length} remark${o.problems.length === 1 ? "" : "s"}` : "Text"),
    o.text
      ? [o.text.ofFile ? null : h("p", {}, "As it would be written; secret data is blanked."), source(o.text, o.problems)]
      : [h("p", {}, "The text may hold a secret and is not shown."), h("ul", {}, o.problems.map((p) => h("li", {}, `line ${p.line}: `, problemText(p))))],
    o.inForce ? [
      h("h2", {}, `Resources that it made (${o.made.total})`),
      o.made.unsearched ? h("p", {}, `${o.made.unsearched} lists of resources were too long to search.`) : null,
      table("Resources", [
        { title: "Resource", cell: (r) => h("code", {}, r.name) }, { title: "Type", cell: (r) => r.type },
        { title: "Clients", numeric: true, cell: (r) => String(r.clients) },
      ], o.made.rows, "No connected client was sent a resource that names it."),
      h("h2", {}, `Clients (${o.holders.total})`),
      table("Clients", [
        { title: "Client", cell: (c) => h("a", { href: links.proxy(c.id) }, c.id) }, { title: "Kind", cell: (c) => c.kind },
        { title: "State", cell: (c) => state(c.standing) }, { title: "Why", cell: (c) => c.why },
      ], o.holders.rows, "None."),
    ] : null,
  ];
}

export function build(app) {
  const [kind, namespace, name] = app.parts;
  const element = h("div", {});
  const question = { kind, namespace: namespace === "-" ? "" : namespace, name };
  if (app.parameters.has("group")) question.group = app.parameters.get("group");
  let first = true;
  async function refresh() {
    const o = await app.ask("object", question);
    swap(element, shown(o));
    if (first) element.querySelector(".wrong")?.scrollIntoView({ block: "center" });
    first = false;
  }
  return { element, refresh };
}

export { objectLink };
