// The graph of services in layers, callers on the left, with the same as a table below.

import { h, links, objectLink, state, svg, table } from "./dom.js";

const WIDTH = 210, HEIGHT = 54, ACROSS = 110, DOWN = 18, EDGE = 12;

// Layers: callees stand one layer after their callers; an edge that would close a circle counts for nothing.
function layered(nodes, edges) {
  const out = new Map(nodes.map((node) => [node.id, []]));
  for (const edge of edges) out.get(edge.from)?.push(edge.to);
  const layer = new Map(), under = new Set(), order = [];
  const visit = (id) => {
    if (layer.has(id)) return;
    layer.set(id, 0);
    under.add(id);
    for (const to of out.get(id)) if (!under.has(to)) visit(to);
    under.delete(id);
    order.unshift(id);
  };
  nodes.forEach((node) => visit(node.id));
  const at = new Map(order.map((id, i) => [id, i]));
  for (const id of order) {
    for (const to of out.get(id)) {
      if (at.get(to) > at.get(id)) layer.set(to, Math.max(layer.get(to), layer.get(id) + 1));
    }
  }
  const layers = [];
  for (const node of nodes) (layers[layer.get(node.id)] ??= []).push(node);
  return layers.filter(Boolean);
}

// Orders each layer by the middle of its neighbours, a few times in both directions.
function ordered(layers, edges) {
  const near = new Map();
  for (const { from, to } of edges) {
    near.set(from, [...(near.get(from) ?? []), to]);
    near.set(to, [...(near.get(to) ?? []), from]);
  }
  for (let round = 0; round < 4; round += 1) {
    const place = new Map();
    layers.forEach((layer) => layer.forEach((node, i) => place.set(node.id, i - layer.length / 2)));
    for (const layer of round % 2 ? [...layers].reverse() : layers) {
      const middle = (node) => {
        const all = (near.get(node.id) ?? []).map((id) => place.get(id) ?? 0);
        return all.length ? all.reduce((a, b) => a + b, 0) / all.length : place.get(node.id);
      };
      layer.sort((a, b) => middle(a) - middle(b));
      layer.forEach((node, i) => place.set(node.id, i - layer.length / 2));
    }
  }
  return layers;
}

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const LOOKS = { "may call": "allowed", "may not call": "denied", "depends on the request": "depends" };

function box(node, x, y, center) {
  const places = node.localities ? Object.keys(node.localities).filter(Boolean).join(", ") : "";
  const second = node.type === "service"
    ? [node.external ? "outside" : node.hasProxy ? `mTLS ${node.mutualTls}` : "no proxy", `${node.healthy}/${node.endpoints}`].join(" · ")
    : node.type;
  const third = node.type === "service" ? [node.namespace, places].filter(Boolean).join(" · ") : "";
  const shape = svg("g", { transform: `translate(${x} ${y})`, class: `node ${node.type}${center ? " center" : ""}` },
    svg("title", {}, [node.label, second, third, node.restricted ? `callers: ${node.restricted}` : ""].filter(Boolean).join("\n")),
    svg("rect", { width: WIDTH, height: HEIGHT, rx: 6 }),
    svg("text", { x: 10, y: 18, class: "label" }, short(node.label, 30)),
    svg("text", { x: 10, y: 33 }, short(second, 36)), svg("text", { x: 10, y: 47 }, short(third, 36)));
  return node.type === "service" ? svg("a", { href: links.service(node.host, node.namespace) }, shape) : shape;
}

// The drawing and its table.
export function drawing(graph) {
  if (graph.edges.length === 0) {
    return h("p", { class: "empty" }, "No object states a call here: without Sidecar, AuthorizationPolicy, route and Gateway every client that sees a service may call it.");
  }
  const drawn = new Set(graph.edges.flatMap((edge) => [edge.from, edge.to]));
  const alone = graph.nodes.filter((node) => !drawn.has(node.id));
  const layers = ordered(layered(graph.nodes.filter((node) => drawn.has(node.id)), graph.edges), graph.edges);
  const places = new Map();
  const tallest = Math.max(...layers.map((layer) => layer.length)) * (HEIGHT + DOWN);
  layers.forEach((layer, column) => {
    const top = EDGE + (tallest - layer.length * (HEIGHT + DOWN)) / 2;
    layer.forEach((node, row) => places.set(node.id, { node, x: EDGE + column * (WIDTH + ACROSS), y: top + row * (HEIGHT + DOWN) }));
  });
  const width = EDGE * 2 + layers.length * WIDTH + (layers.length - 1) * ACROSS;
  const lines = graph.edges.map((edge) => {
    const from = places.get(edge.from), to = places.get(edge.to);
    const back = to.x <= from.x;
    const [x1, x2] = back ? [from.x, to.x + WIDTH] : [from.x + WIDTH, to.x];
    const [y1, y2] = [from.y + HEIGHT / 2, to.y + HEIGHT / 2];
    const bend = back ? -60 : ACROSS / 2;
    const look = edge.call ? LOOKS[edge.call.verdict] : "said";
    const word = edge.call?.traffic === "mutual TLS" ? "mTLS" : edge.call?.traffic === "conflict" ? "✗ conflict" : edge.call?.traffic === "plain text" ? "plain" : "";
    return svg("g", { class: `edge ${look}` },
      svg("title", {}, `${edge.statements.map((s) => s.word).join(", ")}${edge.call ? `: ${edge.call.verdict}, ${edge.call.traffic}` : ""}`),
      svg("path", { d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, "marker-end": `url(#arrow-${look})` }),
      word ? svg("text", { x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 4, "text-anchor": "middle" }, word) : null);
  });
  const arrows = ["allowed", "denied", "depends", "said"].map((look) => svg("marker",
    { id: `arrow-${look}`, class: `edge ${look}`, viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto-start-reverse" },
    svg("path", { d: "M0 0 8 4 0 8z", class: "head" })));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${tallest + EDGE * 2}`, width, height: tallest + EDGE * 2, role: "group", "aria-label": "Calls that objects state; the table below says the same" },
    svg("defs", {}, arrows), lines, [...places.values()].map(({ node, x, y }) => box(node, x, y, node.id === graph.center)));
  const name = (id) => {
    const node = places.get(id).node;
    return node.type === "service" ? h("a", { href: links.service(node.host, node.namespace) }, node.label) : `${node.type} ${node.label}`;
  };
  return h("div", {},
    h("div", { class: "scroll graph", tabindex: "0", role: "region", "aria-label": "Graph" }, picture),
    h("p", { class: "legend" }, "Solid: may call. Dashed: may not call. Dotted: depends on the request. Thin: stated by a route or Gateway. Each line is a call that an object states."),
    graph.leftOut ? h("p", {}, `${graph.leftOut} further nodes are not drawn.`) : null,
    alone.length ? h("p", {}, `No object states a call of: ${alone.map((node) => node.label).slice(0, 20).join(", ")}${alone.length > 20 ? ` and ${alone.length - 20} more` : ""}.`) : null,
    table("Calls that objects state", [
      { title: "From", cell: (e) => name(e.from) }, { title: "To", cell: (e) => name(e.to) },
      { title: "Answer", cell: (e) => (e.call ? state(e.call.verdict) : "–") },
      { title: "Encryption", cell: (e) => (e.call ? state(e.call.traffic) : "–") },
      { title: "Decided by", cell: (e) => (e.call?.by ? objectLink(e.call.by) : e.call?.why ?? "–") },
      { title: "Stated by", cell: (e) => h("ul", {}, e.statements.map((s) => h("li", {}, `${s.word}: `, objectLink(s.by)))) },
    ], graph.edges));
}
