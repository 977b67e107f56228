// Services: the list, and the graph of a small mesh.

import { h, links, number, state, swap } from "./dom.js";
import { drawing } from "./graph.js";
import { list } from "./list.js";

export const topics = ["config"];
export const title = () => "Services";

export const localities = (all) => Object.entries(all).map(([name, count]) => `${name || "no locality"} (${count})`).join(", ") || "–";
export const endpoints = (s) => (s.endpoints === 0 ? state("no endpoint") : `${number(s.healthy)} of ${number(s.endpoints)}`);

export function build(app) {
  const columns = [
    { title: "Service", cell: (s) => h("a", { href: links.service(s.host, s.namespace) }, s.host) },
    { title: "Namespace", cell: (s) => s.namespace },
    { title: "Object", cell: (s) => h("a", { href: links.object({ kind: s.kind, namespace: s.namespace, name: s.object }) }, `${s.kind} ${s.object}`) },
    { title: "Ports", cell: (s) => s.ports.join(", ") },
    { title: "Usable endpoints", numeric: true, cell: endpoints },
    { title: "Localities", cell: (s) => localities(s.localities) },
    { title: "Accepts mutual TLS", cell: (s) => (s.external ? "outside of the mesh" : s.hasProxy ? state(s.mutualTls) : "no proxy") },
    { title: "Callers", cell: (s) => s.restricted },
  ];
  const graph = h("div", {});
  const shown = list({ app, page: "services", caption: "Services", columns, search: "Search by host, namespace or object", empty: "No service." });
  const element = h("div", {}, shown.element, h("section", { "aria-labelledby": "graph-title" }, h("h2", { id: "graph-title" }, "Graph"), graph));
  async function refresh() {
    await shown.refresh();
    const answer = await app.ask("graph");
    swap(graph, answer.tooLarge
      ? h("p", {}, `The mesh has ${number(answer.tooLarge)} services; more than ${answer.most} are not drawn as a whole. Choose a service above: its page draws the calls around it.`)
      : drawing(answer));
  }
  return { element, refresh };
}
