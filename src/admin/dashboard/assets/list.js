// A list in pages: the server filters and cuts it, the browser holds one page of it.

import { h, number, swap, tableRow } from "./dom.js";

// `columns` have a title and a cell; `filters` a name, a label and options; `fixed` are parameters of every question.
export function list({ app, page, caption, columns, filters = [], fixed = {}, search = "Search", empty = "None.", seen }) {
  const wanted = { q: app.parameters.get("q") ?? "", page: 1 };
  for (const filter of filters) wanted[filter.name] = app.parameters.get(filter.name) ?? "";
  const id = `list-${page}-${Object.values(fixed).join("-")}`.replace(/[^a-z0-9-]/gi, "_");
  const body = h("tbody", {});
  const count = h("p", { class: "count", role: "status" });
  const previous = h("button", { type: "button", onclick: () => turn(-1) }, "Previous");
  const next = h("button", { type: "button", onclick: () => turn(1) }, "Next");
  let waiting = null;
  const input = h("input", {
    type: "search", id: `${id}-search`, value: wanted.q, "data-search": "", autocomplete: "off", spellcheck: "false",
    oninput: () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => change({ q: input.value }), 150);
    },
  });
  const selects = filters.map((filter) => {
    const select = h("select", { id: `${id}-${filter.name}`, onchange: () => change({ [filter.name]: select.value }) },
      filter.options.map(([value, text]) => h("option", { value, selected: wanted[filter.name] === value }, text)));
    return h("span", { class: "field" }, h("label", { for: select.id }, filter.label), select);
  });
  const table = h("table", {}, h("caption", { class: "hidden" }, caption),
    h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.numeric && "numeric" }, c.title)))), body);
  const element = h("div", { class: "list" },
    h("div", { class: "bar", role: "search" },
      h("span", { class: "field" }, h("label", { for: input.id }, search), input), selects, count,
      h("span", { class: "pager" }, previous, next)),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table));

  function change(to) {
    Object.assign(wanted, to, { page: 1 });
    if (Object.keys(fixed).length === 0) app.remember({ ...wanted, page: undefined });
    refresh().catch(app.failed);
  }

  function turn(by) {
    wanted.page += by;
    refresh().catch(app.failed);
  }

  let asked = 0;
  async function refresh() {
    const mine = ++asked;
    const answer = await app.ask(page, { ...fixed, ...wanted });
    if (mine !== asked) return;
    wanted.page = answer.page;
    const rows = answer.rows.map((row) => tableRow(columns, row));
    swap(body, rows.length ? rows : h("tr", {}, h("td", { colspan: columns.length, class: "empty" }, empty)));
    count.textContent = `${number(answer.total)} found, page ${answer.page} of ${answer.pages}`;
    previous.disabled = answer.page <= 1;
    next.disabled = answer.page >= answer.pages;
    seen?.(answer);
  }

  return { element, refresh };
}
