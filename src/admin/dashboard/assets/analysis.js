// The analysis of the objects in force, as `pilothouse analyze` and `istioctl analyze` word it.

import { h, links, state, time } from "./dom.js";
import { list } from "./list.js";

export const topics = ["config"];
export const title = () => "Analysis";

// `Kind NAMESPACE/NAME` as a link.
function origin(text) {
  const [kind, full] = text.split(" ");
  if (!full) return text;
  const at = full.indexOf("/");
  const object = { kind, name: full.slice(at + 1), namespace: full.slice(0, Math.max(0, at)) };
  return h("a", { href: links.object(object) }, text);
}

export function build(app) {
  const counts = h("p", { class: "counts" });
  let again = null;
  const shown = list({
    app, page: "analysis", caption: "Messages", search: "Search by code, object, file or text", empty: "✓ Nothing is wrong.",
    filters: [{ name: "level", label: "Level", options: [["", "all"], ["Error", "Error"], ["Warning", "Warning"], ["Info", "Info"]] }],
    columns: [
      { title: "Object", cell: (m) => origin(m.origin) },
      { title: "Level", cell: (m) => state(m.level) },
      { title: "Code", cell: (m) => h("code", {}, m.code) },
      { title: "Message", cell: (m) => [m.message, m.wayOut ? h("div", { class: "way-out" }, m.wayOut) : ""] },
      { title: "Place", cell: (m) => [h("span", { class: "place" }, m.reference), m.path ? [" ", h("code", {}, m.path)] : ""] },
    ],
    seen: (answer) => {
      counts.replaceChildren(`${answer.counts.Error} errors, ${answer.counts.Warning} warnings, ${answer.counts.Info} notes, as of `, time(answer.asOf));
      clearTimeout(again);
      if (answer.againIn) {
        counts.append(`; the objects have changed since, the next analysis is due in ${answer.againIn} s`);
        again = setTimeout(() => app.again(), answer.againIn * 1000);
      }
    },
  });
  return { element: h("div", {}, counts, shown.element), refresh: shown.refresh, end: () => clearTimeout(again) };
}
