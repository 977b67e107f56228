// The shell: views by the part of the address after #, notices of changes, keys, light and dark.

import { ask, h, number, swap } from "./dom.js";
import { follow } from "./notices.js";
import * as fleet from "./fleet.js";
import * as services from "./services.js";
import * as service from "./service.js";
import * as objects from "./objects.js";
import * as object from "./object.js";
import * as proxy from "./proxy.js";
import * as pushes from "./pushes.js";
import * as sources from "./sources.js";
import * as analysis from "./analysis.js";

const VIEWS = [
  { name: "fleet", title: "Fleet", key: "f", module: fleet },
  { name: "services", title: "Services", key: "s", module: services, one: service },
  { name: "objects", title: "Objects", key: "o", module: objects, one: object },
  { name: "proxies", title: "Proxies", module: fleet, one: proxy, hidden: true },
  { name: "pushes", title: "Pushes", key: "p", module: pushes },
  { name: "sources", title: "Sources", key: "r", module: sources },
  { name: "analysis", title: "Analysis", key: "a", module: analysis },
];
// The shortest time between two refreshes of a view.
const PAUSE = 1000;

const main = document.getElementById("main");
const said = document.getElementById("said");
const live = document.getElementById("live");
let notice = null;
let current = null;

function route() {
  const [path, query] = (location.hash.slice(1) || "/fleet").split("?");
  const [name, ...parts] = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { view: VIEWS.find((view) => view.name === name) ?? VIEWS[0], parts, parameters: new URLSearchParams(query) };
}

function show() {
  if (location.hash === "#main") return;
  const { view, parts, parameters } = route();
  const module = parts.length && view.one ? view.one : view.module;
  const app = {
    parts, parameters, failed, say,
    ask: (page, questions) => ask(page, questions, notice?.v),
    fresh: (page, questions) => ask(page, questions),
    again: () => refresh(true),
    remember: (values) => {
      const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
      history.replaceState(null, "", `#/${[view.name, ...parts.map(encodeURIComponent)].join("/")}${query.size ? `?${query}` : ""}`);
    },
  };
  const title = h("h1", { id: "title", tabindex: "-1" }, module.title(app));
  const problem = h("p", { role: "alert", class: "problem" });
  const built = module.build(app);
  const moved = current !== null;
  current?.end?.();
  current = { ...built, topics: module.topics, problem, seen: notice, at: 0, busy: false };
  main.replaceChildren(title, problem, built.element);
  document.title = `${title.textContent} – pilothouse`;
  for (const link of document.querySelectorAll("#nav a")) {
    const here = link.dataset.view === view.name || (view.hidden && link.dataset.view === "fleet");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (moved) title.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  refresh(true);
}

function failed(error) {
  if (current) current.problem.textContent = error.message;
}

// Asks for what is shown again, where it changed.
async function refresh(now) {
  const view = current;
  if (!view || document.hidden) return;
  const changed = notice && (!view.seen || view.topics.some((topic) => notice[topic] > view.seen[topic]));
  if (!now && !changed) return;
  if (view.busy) {
    view.later = true;
    return;
  }
  const rest = now ? 0 : view.at + PAUSE - Date.now();
  if (rest > 0) {
    view.timer ??= setTimeout(() => { view.timer = null; refresh(); }, rest);
    return;
  }
  Object.assign(view, { busy: true, later: false, at: Date.now(), seen: notice });
  try {
    await view.refresh();
    if (view === current) view.problem.textContent = "";
    document.documentElement.dataset.shown = String(Number(document.documentElement.dataset.shown ?? 0) + 1);
  } catch (error) {
    if (view === current) failed(error);
  }
  view.busy = false;
  if (view.later) refresh();
}

function say(text) {
  if (said.textContent !== text) said.textContent = text;
}

let overviewSeen = "";
async function overview() {
  if (document.hidden) return;
  const o = await ask("overview", {}, notice?.v);
  const bad = [];
  if (!o.ready) bad.push(`not ready, waiting for ${o.waitingFor.join(", ") || "the first push"}`);
  if (o.refused) bad.push(h("a", { href: "#/fleet?state=refused" }, `${number(o.refused)} refuse configuration`));
  if (o.behind) bad.push(h("a", { href: "#/fleet?state=behind" }, `${number(o.behind)} behind`));
  if (o.staleSources) bad.push(h("a", { href: "#/sources" }, `${number(o.staleSources)} stale sources`));
  if (o.holdingSources) bad.push(h("a", { href: "#/sources" }, `${number(o.holdingSources)} sources hold a deletion`));
  if (o.refusedDocuments) bad.push(h("a", { href: "#/sources" }, `${number(o.refusedDocuments)} documents refused`));
  document.getElementById("version").textContent = o.version;
  swap(document.getElementById("overview"),
    h("p", {},
      h("span", { class: `state ${bad.length ? "wait" : "ok"}` }, o.ready ? (bad.length ? "Ready, with open ends: " : "✓ Ready. ") : "✗ "),
      bad.map((part, i) => [i ? ", " : "", part]), bad.length ? ". " : "",
      `${number(o.proxies)} proxies, ${number(o.services)} services, ${number(o.objects)} objects, push ${number(o.push)}.`));
  const words = bad.map((part) => (typeof part === "string" ? part : part.textContent)).join(", ");
  if (words !== overviewSeen) say(words || "all is in sync");
  overviewSeen = words;
}

function heard(told) {
  live.textContent = told.connected ? "● live" : "✗ not connected";
  live.className = told.connected ? "state ok" : "state bad";
  if (!told.notice) return;
  notice = told.notice;
  overview().catch(() => {});
  refresh();
}

function theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const button = document.getElementById("theme");
  button.setAttribute("aria-pressed", String(dark));
}

function keys() {
  const dialog = document.getElementById("keys");
  const rows = VIEWS.filter((view) => view.key).map((view) => [`g ${view.key}`, view.title]);
  rows.push(["/", "Search in the view"], ["d", "Light or dark"], ["?", "These keys"], ["Esc", "Close"]);
  dialog.replaceChildren(h("h2", { id: "keys-title" }, "Keys"),
    h("dl", { class: "facts" }, rows.map(([key, text]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)))),
    h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); dialog.close(); } }, h("button", {}, "Close")));
  const open = () => dialog.open || dialog.showModal();
  document.getElementById("help").addEventListener("click", open);
  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (event.target.closest("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (Date.now() - going < 1500) {
      going = 0;
      const view = VIEWS.find((known) => known.key === event.key);
      if (view) {
        event.preventDefault();
        location.hash = `#/${view.name}`;
        return;
      }
    }
    if (event.key === "g") going = Date.now();
    else if (event.key === "/") {
      event.preventDefault();
      main.querySelector("[data-search]")?.focus();
    } else if (event.key === "d") document.getElementById("theme").click();
    else if (event.key === "?") open();
  });
}

document.getElementById("nav").append(h("ul", {}, VIEWS.filter((view) => !view.hidden)
  .map((view) => h("li", {}, h("a", { href: `#/${view.name}`, "data-view": view.name }, view.title)))));
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
const chosen = localStorage.getItem("pilothouse-theme");
theme(chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
document.getElementById("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme !== "dark";
  theme(dark);
  localStorage.setItem("pilothouse-theme", dark ? "dark" : "light");
});
keys();
window.addEventListener("hashchange", show);
document.addEventListener("visibilitychange", () => {
  overview().catch(() => {});
  refresh();
});
show();
overview().catch(() => {});
follow(heard);
