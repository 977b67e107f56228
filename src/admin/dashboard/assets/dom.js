// Elements, questions to the server, and the forms of numbers and times.

export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A page of the API. `notice` is the number of the notice that is followed: pages that follow the same one share the answer.
export async function ask(page, parameters = {}, notice) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  if (notice) query.set("v", notice);
  const response = await fetch(`/dashboard/api/${page}?${query}`, { headers: { "x-pilothouse-dashboard": "1" } });
  if (!response.ok) throw new Error((await response.text()).trim() || `status ${response.status}`);
  return response.json();
}

export async function post(page, parameters) {
  const query = new URLSearchParams(parameters);
  const response = await fetch(`/dashboard/api/${page}?${query}`, {
    method: "POST",
    headers: { "x-pilothouse-dashboard": "1" },
  });
  const text = (await response.text()).trim();
  if (!response.ok) throw new Error(text || `status ${response.status}`);
  return text;
}

const path = (...parts) => parts.map(encodeURIComponent).join("/");

export const links = {
  service: (host, namespace) => `#/services/${path(namespace, host)}`,
  proxy: (id) => `#/proxies/${path(id)}`,
  object: (o) => `#/objects/${path(o.kind, o.namespace || "-", o.name)}${o.group !== undefined && o.group !== null ? `?group=${encodeURIComponent(o.group)}` : ""}`,
};

// A link to an object, with the place that it is written in.
export function objectLink(object, withPlace = true) {
  if (!object) return "";
  const name = object.namespace ? `${object.name}.${object.namespace}` : object.name;
  const link = h("a", { href: links.object(object) }, `${object.kind} ${name}`);
  return withPlace && object.place ? [link, " ", h("span", { class: "place" }, object.place)] : link;
}

const SIGNS = {
  SYNCED: "ok", "in sync": "ok", "may call": "ok", "mutual TLS": "ok", synced: "ok", STRICT: "ok",
  STALE: "wait", behind: "wait", "depends on the request": "wait", holding: "wait", Warning: "wait", starting: "wait",
  ERROR: "bad", refused: "bad", "may not call": "bad", conflict: "bad", stale: "bad", Error: "bad", Refused: "bad",
};
const MARKS = { ok: "✓", wait: "◔", bad: "✗", none: "–" };

// A state: a sign and a word, never a colour alone.
export function state(word) {
  const sign = SIGNS[word] ?? "none";
  return h("span", { class: `state ${sign}` }, h("span", { "aria-hidden": "true" }, `${MARKS[sign]} `), word);
}

export const number = (value) => (value ?? 0).toLocaleString("en");

export function bytes(value) {
  if (value < 1024) return `${value} B`;
  return value < 1 << 20 ? `${(value / 1024).toFixed(1)} KiB` : `${(value / (1 << 20)).toFixed(1)} MiB`;
}

export function millis(value) {
  if (value === null || value === undefined) return "–";
  return value < 1000 ? `${value.toFixed(value < 10 ? 1 : 0)} ms` : `${(value / 1000).toFixed(2)} s`;
}

export function ago(at) {
  if (!at) return "never";
  const seconds = Math.max(0, Math.round((Date.now() - at) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

export function time(at) {
  return h("time", { datetime: new Date(at).toISOString(), title: new Date(at).toISOString() }, ago(at));
}

// A table with its headers.
export function table(caption, columns, rows, empty = "None.") {
  if (rows.length === 0) return h("p", { class: "empty" }, empty);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.numeric && "numeric" }, c.title)))),
      h("tbody", {}, rows.map((row) => tableRow(columns, row)))));
}

export function tableRow(columns, row) {
  return h("tr", {}, columns.map((c, i) => (i === 0
    ? h("th", { scope: "row" }, c.cell(row))
    : h("td", { class: c.numeric && "numeric" }, c.cell(row)))));
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined)
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// Swaps the content of an element; the focus stays on the element with the same id.
export function swap(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement.id || document.activeElement.getAttribute("href") : null;
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  if (!focused) return;
  const again = document.getElementById(focused) ?? element.querySelector(`[href="${CSS.escape(focused)}"]`);
  again?.focus({ preventScroll: true });
}
