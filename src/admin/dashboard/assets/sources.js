// Sources: state and lag, refused documents, held deletions with the button that lets one through.

import { ago, facts, h, links, number, post, state, swap, table } from "./dom.js";

export const topics = ["sources"];
export const title = () => "Sources";
const EVERY = 15000;

const at = (r) => `${r.file}${r.line ? `:${r.line}` : ""}${r.line && r.column ? `:${r.column}` : ""}`;
const named = (r) => (r.name ? `${r.kind} ${r.name}${r.namespace ? `.${r.namespace}` : ""}` : r.kind || "document");

function findings(source, sort, caption, text) {
  const all = source.findings[sort] ?? [];
  if (all.length === 0) return null;
  const of = source.counts[sort];
  return [h("h3", {}, `${caption} (${number(of)})`), of > all.length ? h("p", {}, `The first ${all.length}:`) : null,
    table(caption, [
      { title: "Document", cell: (r) => (r.name && r.kind && r.api_version === undefined ? h("a", { href: links.object({ kind: r.kind, namespace: r.namespace || "default", name: r.name }) }, named(r)) : named(r)) },
      { title: "Place", cell: (r) => h("span", { class: "place" }, at(r)) },
      { title: "Reason", cell: text },
    ], all)];
}

function held(source, mayConfirm, confirm) {
  const keys = source.held_deletions;
  if (keys.length === 0) return null;
  const of = source.counts.held_deletions;
  return h("section", { class: "held", "aria-label": `Held deletion of ${source.source}` },
    h("h3", {}, `✗ The deletion of ${number(of)} objects is held back`),
    h("p", {}, "They stay in force until the deletion is confirmed, or the objects come back."),
    h("details", {}, h("summary", {}, "The objects"), h("ul", {}, keys.map((key) => h("li", {}, key))), of > keys.length ? h("p", {}, `and ${number(of - keys.length)} more`) : null),
    mayConfirm
      ? h("button", { type: "button", class: "danger", onclick: () => confirm(source) }, `Confirm the deletion of ${number(of)} objects`)
      : h("p", {}, "It is confirmed on the server's own machine:"),
    h("p", {}, h("code", {}, source.confirm_with)));
}

// A kind that is watched, with a state of its own.
function feedItem(feed) {
  const where = feed.namespace ? ` in ${feed.namespace}` : "";
  return h("li", {}, `${feed.resource}${where}: `, state(String(feed.state)), `, ${number(feed.objects)} objects`,
    feed.last_error ? h("strong", {}, ` ✗ ${feed.last_error}`) : "");
}

function one(source, mayConfirm, confirm) {
  const look = source.last_look ? ago(source.last_look * 1000) : "–";
  return h("section", { "aria-label": source.source },
    h("h2", {}, source.source),
    facts([
      ["State", [state(source.state), ` since ${ago(source.since * 1000)}`]],
      ["Objects", number(source.objects)], ["Last look", look], ["Restarts", number(source.restarts)],
      ["Last error", source.last_error ? h("strong", {}, `✗ ${source.last_error}`) : ""],
      ["Content saved", source.saved_at ? ago(source.saved_at * 1000) : ""],
      ["Kept although refused or removed", source.kept.length ? source.kept.join(", ") : ""],
      ["Not read yet", source.unparsed?.join(", ")], ["Never answered", source.unanswered?.join(", ")],
      ["Kinds", source.feeds ? h("ul", {}, source.feeds.map(feedItem)) : ""],
      ["Hidden by other sources", source.shadowed ? h("ul", {}, source.shadowed.map((s) => h("li", {}, `${s.key} (${s.place}) by ${s.by.place}`))) : ""],
    ]),
    held(source, mayConfirm, confirm),
    findings(source, "refused", "Refused documents", (r) => r.reason),
    findings(source, "warned", "Warnings", (r) => r.warning),
    findings(source, "skipped", "No Kubernetes objects", (r) => r.reason),
    findings(source, "ignored", "Kinds that are not read", (r) => `${r.api_version} ${r.kind}`));
}

export function build(app) {
  const body = h("div", {});
  const answer = h("p", { role: "status", id: "confirmed" });
  const dialog = h("dialog", { "aria-labelledby": "confirm-title" });
  function confirm(source) {
    const go = async () => {
      dialog.close();
      try {
        answer.textContent = `✓ ${(await post("confirm", { source: source.source })).split("\n")[0]}`;
      } catch (error) {
        answer.textContent = `✗ ${error.message}`;
      }
      show(await app.fresh("sources"));
    };
    dialog.replaceChildren(h("h2", { id: "confirm-title" }, "Confirm the deletion"),
      h("p", {}, `${number(source.counts.held_deletions)} objects of ${source.source} will be deleted, and proxies lose what they make.`),
      h("p", {}, h("button", { type: "button", class: "danger", id: "confirm-yes", onclick: () => go().catch(app.failed) }, "Delete them"), " ",
        h("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Keep them")));
    dialog.showModal();
  }
  function show(found) {
    const open = new Set([...body.querySelectorAll("section[aria-label] details[open]")].map((d) => d.closest("section").getAttribute("aria-label")));
    swap(body, found.sources.map((source) => one(source, found.mayConfirm, confirm)),
      found.sources.length ? null : h("p", { class: "empty" }, "No source."));
    for (const details of body.querySelectorAll("details")) details.open = open.has(details.closest("section").getAttribute("aria-label"));
  }
  const refresh = async () => show(await app.ask("sources", { t: Math.floor(Date.now() / EVERY) }));
  const timer = setInterval(() => app.again(), EVERY);
  return { element: h("div", {}, answer, body, dialog), refresh, end: () => clearInterval(timer) };
}
