// Objects in force.

import { h, links, number } from "./dom.js";
import { list } from "./list.js";

export const topics = ["config"];
export const title = () => "Objects";

export function build(app) {
  const kinds = h("ul", { class: "kinds" });
  const shown = list({
    app, page: "objects", caption: "Objects in force", search: "Search by name, namespace, kind or file", empty: "No object.",
    fixed: app.parameters.get("kind") ? { kind: app.parameters.get("kind"), group: app.parameters.get("group") ?? "" } : {},
    columns: [
      { title: "Object", cell: (o) => h("a", { href: links.object(o) }, o.name) },
      { title: "Kind", cell: (o) => [o.kind, o.group ? [" ", h("small", {}, o.group)] : ""] },
      { title: "Namespace", cell: (o) => o.namespace || "–" },
      { title: "Place", cell: (o) => h("span", { class: "place" }, o.place) },
      { title: "Cluster", cell: (o) => o.cluster || "main" },
    ],
    seen: (answer) => kinds.replaceChildren(
      h("li", {}, h("a", { href: "#/objects" }, "all kinds")),
      ...answer.kinds.map((k) => h("li", {}, h("a", { href: `#/objects?kind=${k.kind}&group=${k.group}` }, `${k.kind} ${number(k.count)}`)))),
  });
  return { element: h("div", {}, kinds, shown.element), refresh: shown.refresh };
}
