// One service: ports, rules, routes, the graph around it, and the calls to it and from it.

import { facts, h, links, objectLink, state, swap, table } from "./dom.js";
import { drawing } from "./graph.js";
import { list } from "./list.js";
import { endpoints, localities } from "./services.js";

export const topics = ["config"];
export const title = (app) => `Service ${app.parts[1] ?? ""}`;

const dotted = (kind, group, entry) => {
  const at = entry.name.lastIndexOf(".");
  return objectLink({ kind: entry.kind ?? kind, group, name: entry.name.slice(0, at), namespace: entry.name.slice(at + 1), place: entry.place });
};
const items = (all, show) => (all.length ? h("ul", {}, all.map((one) => h("li", {}, show(one)))) : "none");

const CALL = [
  { title: "Service", cell: (c) => [h("a", { href: links.service(c.host, c.namespace) }, c.host), " ", h("small", {}, c.namespace)] },
  { title: "Answer", cell: (c) => state(c.verdict) },
  { title: "Encryption", cell: (c) => state(c.traffic) },
  { title: "Because", cell: (c) => c.why },
  { title: "Object", cell: (c) => objectLink(c.by) },
];

function described(s) {
  const row = s.row;
  return [
    facts([
      ["Object", objectLink(s.key)],
      ["Namespace", row.namespace], ["Address", s.address], ["Resolution", s.resolution],
      ["Usable endpoints", endpoints(row)], ["Localities", localities(row.localities)],
      ["Accepts mutual TLS", row.external ? "outside of the mesh" : row.hasProxy ? state(row.mutualTls) : "no workload has a proxy"],
      ["Callers", row.restricted],
      ["DestinationRules", items(s.destinationRules, (r) => [dotted("DestinationRule", "networking.istio.io", r), r.subsets.length ? `, subsets ${r.subsets.join(", ")}` : ""])],
      ["VirtualServices", items(s.virtualServices, (v) => dotted("VirtualService", undefined, v))],
      ["Gateways", items(s.gateways, (g) => `${g.gateway}${g.exists ? "" : " (does not exist)"}: ${g.hosts.join(", ")}`)],
    ]),
    s.warnings.map((warning) => h("p", { class: "problem" }, `✗ ${warning}`)),
    h("h2", {}, "Ports"),
    table("Ports", [
      { title: "Port", cell: (p) => String(p.port) }, { title: "Name", cell: (p) => p.name },
      { title: "Protocol", cell: (p) => p.protocol }, { title: "Clients send", cell: (p) => p.clients },
    ], s.ports),
    h("h2", {}, "Workloads"),
    table("Workloads", [
      { title: "Workload", cell: (w) => w.workload },
      { title: "Endpoints", numeric: true, cell: (w) => String(w.endpoints) },
      { title: "Mutual TLS", cell: (w) => items(w.ports, (p) => [`${p.port}: `, state(p.mutualTls)]) },
      { title: "Policies", cell: (w) => items([...w.policies.mutualTls.peerAuthentications, ...w.policies.authorizationPolicies, ...w.policies.requestAuthentications],
        (p) => [dotted(p.kind, "security.istio.io", p), p.action ? ` ${p.action}` : ""]) },
    ], s.workloads, "No workload."),
  ];
}

export function build(app) {
  const [namespace, host] = app.parts;
  const about = h("div", {});
  const graph = h("div", {});
  const fixed = { host, namespace };
  const callers = list({ app, page: "callers", caption: "Callers", columns: CALL, fixed, search: "Search callers" });
  const callees = list({ app, page: "callees", caption: "Called services", columns: CALL, fixed, search: "Search called services" });
  const element = h("div", {}, about,
    h("h2", {}, "Graph"), graph,
    h("h2", {}, "May call it"),
    h("p", {}, "For each service its first workload is judged: what its Sidecar and exportTo let it see, the TLS of both sides, and AuthorizationPolicies as far as they decide without a request."),
    callers.element,
    h("h2", {}, "It may call"), callees.element);
  async function refresh() {
    const [s, g] = await Promise.all([app.ask("service", fixed), app.ask("graph", fixed)]);
    swap(about, described(s));
    swap(graph, drawing(g));
    await Promise.all([callers.refresh(), callees.refresh()]);
  }
  return { element, refresh };
}
