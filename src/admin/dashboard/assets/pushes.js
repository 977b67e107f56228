// Pushes on a time line: cause, debounce, build, sending, acknowledgements; and percentiles.

import { bytes, h, links, millis, number, swap, svg, table, time } from "./dom.js";

export const topics = ["config", "fleet"];
export const title = () => "Pushes";

const WIDTH = 420;

// The stages of a push as parts of one bar; `longest` is the full width.
function bar(p, longest) {
  const at = (ms) => Math.min(WIDTH, (ms / longest) * WIDTH);
  const s = p.stages;
  const parts = [];
  if (s) {
    parts.push(["debounce", 0, s.debounced_ms], ["wait", s.debounced_ms, s.build_began_ms], ["build", s.build_began_ms, s.build_ended_ms]);
  }
  const published = p.published_ms;
  parts.push(["publish", s ? s.build_ended_ms : 0, published]);
  // What is sent again to a client that refused it comes after the last ACK.
  const sent = p.responses ? Math.max(published, p.acked ? Math.min(p.last_sent_ms, p.last_ack_ms) : p.last_sent_ms) : published;
  parts.push(["send", published, sent]);
  if (p.acked) parts.push(["ack", sent, p.last_ack_ms]);
  const words = parts.map(([name, from, to]) => `${name} ${millis(Math.max(0, to - from))}`).join(", ");
  return svg("svg", { class: "bar", width: WIDTH, height: 14, role: "img", "aria-label": words },
    svg("title", {}, words),
    parts.filter(([, from, to]) => to > from).map(([name, from, to]) => svg("rect", { class: name, x: at(from), width: Math.max(1, at(to) - at(from)), height: 14 })));
}

function key(text) {
  const [kind, namespace, ...rest] = text.split("/");
  const name = rest.join("/");
  if (kind === "Endpoints" || kind === "DNSName" || (kind === "ServiceEntry" && name.includes("."))) {
    return h("a", { href: links.service(name, namespace) }, `${kind} ${name}.${namespace}`);
  }
  return h("a", { href: links.object({ kind, namespace, name }) }, `${kind} ${name}.${namespace}`);
}

function cause(p) {
  const reasons = p.reasons.map(([why, count]) => `${why}${count > 1 ? ` (${count})` : ""}`).join(", ");
  const named = p.keys.map((text, i) => [i ? ", " : "", key(text)]);
  const more = p.changed > p.keys.length ? ` and ${number(p.changed - p.keys.length)} more` : "";
  return [reasons || "the generator failed before", p.forced ? ": everything" : p.keys.length ? [": ", named, more] : ""];
}

const STAGES = ["debounce", "wait", "build", "publish", "send", "ack"];

function shown(answer) {
  const longest = Math.max(1, ...answer.pushes.slice(0, 50).map((p) => Math.max(p.published_ms, p.last_ack_ms)));
  const q = answer.percentiles;
  return [
    h("h2", {}, "Percentiles"),
    h("p", {}, `Over the ${number(q.pushes)} pushes among the last ${number(answer.remembered)} that a client acknowledged; times since the first of the merged triggers. A push counts the clients that were connected when it was published.`),
    table("Percentiles", [
      { title: "Stage", cell: (r) => r[0] }, { title: "p50", numeric: true, cell: (r) => millis(r[1].p50) },
      { title: "p90", numeric: true, cell: (r) => millis(r[1].p90) }, { title: "p99", numeric: true, cell: (r) => millis(r[1].p99) },
    ], [["debounce", q.debounce], ["build of the context", q.build], ["until published", q.published], ["until the last ACK", q.lastAck]]),
    h("h2", {}, "The last pushes"),
    h("p", { class: "legend" }, "Stages: ", STAGES.map((name, i) => [i ? " → " : "", h("span", { class: `stage ${name}` }, name)]), ` (full width: ${millis(longest)})`),
    table("Pushes", [
      { title: "Push", cell: (p) => [`#${p.version} `, time(p.at * 1000)] },
      { title: "Cause", cell: cause },
      { title: "Time line", cell: (p) => bar(p, longest) },
      { title: "Debounce", numeric: true, cell: (p) => (p.stages ? `${millis(p.stages.debounced_ms)}, ${p.stages.merged} merged` : "–") },
      { title: "Build", numeric: true, cell: (p) => (p.stages ? millis(p.stages.build_ended_ms - p.stages.build_began_ms) : "–") },
      { title: "Clients", numeric: true, cell: (p) => number(p.connections) },
      { title: "Sent", numeric: true, cell: (p) => `${number(p.responses)}, ${bytes(p.bytes)}` },
      { title: "ACK", numeric: true, cell: (p) => [number(p.acked), p.nacked ? h("strong", {}, `, ✗ ${number(p.nacked)} refused`) : ""] },
      { title: "ACK p50 / p99", numeric: true, cell: (p) => (p.ack_ms ? `≤ ${millis(p.ack_ms.p50)} / ${millis(p.ack_ms.p99)}` : "–") },
      { title: "Last ACK", numeric: true, cell: (p) => (p.acked ? millis(p.last_ack_ms) : "–") },
    ], answer.pushes.slice(0, 50), "No push yet."),
  ];
}

export function build(app) {
  const element = h("div", {});
  return { element, refresh: async () => swap(element, shown(await app.ask("pushes"))) };
}
