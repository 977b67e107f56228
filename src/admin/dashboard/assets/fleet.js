// The fleet: connected clients, the worst first; a refusal with its object and line.

import { h, links, objectLink, state, time } from "./dom.js";
import { list } from "./list.js";

export const topics = ["fleet", "config"];
export const title = () => "Fleet";

// Refusals, each traced to the object that the resource is made from.
export function refusals(all) {
  return h("ul", { class: "refusals" }, all.map((r) => h("li", {},
    h("strong", {}, r.type), r.resource ? [" ", h("code", {}, r.resource)] : "", ": ", r.message,
    r.object ? [" — made from ", objectLink(r.object)] : " — no single object decides it")));
}

export const typeStates = (types) => h("ul", { class: "types" },
  types.map((t) => h("li", {}, h("span", { class: "type" }, t.type), " ", state(t.state))));

const STATES = ["refused", "behind", "in sync", "asks for nothing"];

export function build(app) {
  const counts = h("p", { class: "counts", id: "counts" });
  const columns = [
    { title: "Proxy", cell: (c) => h("a", { href: links.proxy(c.id) }, c.id) },
    { title: "State", cell: (c) => [state(c.standing), c.waitingSince ? [" ", h("small", {}, "asked ", time(c.waitingSince))] : ""] },
    { title: "Types", cell: (c) => [typeStates(c.types), c.refusals.length ? refusals(c.refusals) : "",
      c.leftOut ? h("p", {}, h("a", { href: links.proxy(c.id) }, `${c.leftOut} parts are left out`)) : ""] },
    { title: "Kind", cell: (c) => [c.kind, " ", h("small", {}, c.protocol)] },
    { title: "Namespace", cell: (c) => c.namespace },
    { title: "Locality", cell: (c) => c.locality || "–" },
    { title: "Address", cell: (c) => c.address },
    { title: "Connected", cell: (c) => time(c.connectedAt) },
  ];
  const options = [["", "all"], ...STATES.map((word) => [word, word])];
  const shown = list({
    app, page: "fleet", caption: "Connected clients", columns,
    filters: [{ name: "state", label: "State", options }],
    search: "Search by name, namespace or address",
    empty: "No client. Start one with: pilothouse bootstrap envoy --help",
    seen: (answer) => counts.replaceChildren(...STATES.flatMap((word, i) => [i ? " · " : "", h("a", { href: `#/fleet?state=${encodeURIComponent(word)}` }, `${answer.counts[word]} ${word}`)])),
  });
  return { element: h("div", {}, counts, shown.element), refresh: shown.refresh };
}
