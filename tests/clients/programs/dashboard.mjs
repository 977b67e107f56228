// Drives the dashboard in a headless Chromium: dashboard.mjs BASE-URL FOLDER CHECK [SCREENSHOTS]. Ends with 0 when the check holds.
// The folder with node_modules is the working directory.

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(join(process.cwd(), "package.json"));
const load = async (name) => {
  const module = await import(pathToFileURL(require.resolve(name)));
  return module.default ?? module;
};
const chromium = await load("@sparticuz/chromium");
const puppeteer = await load("puppeteer-core");
const [base, folder, wanted, pictures] = process.argv.slice(2);
const LONG = 60_000;

const browser = await puppeteer.launch({
  args: ["--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage"],
  executablePath: await chromium.executablePath(),
  headless: "shell",
  userDataDir: `${folder}.profile`,
});
const faults = [];

async function open(hash = "", at = base) {
  const page = await browser.newPage();
  await page.setViewport({ width: 1400, height: 900 });
  page.setDefaultTimeout(LONG);
  page.on("console", (message) => message.type() === "error" && faults.push(`console: ${message.text()}`));
  page.on("dialog", (dialog) => {
    faults.push(`a text became a script: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("pageerror", (error) => faults.push(`error: ${error}`));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(at) && !url.startsWith("data:") && !url.startsWith("about:")) faults.push(`elsewhere: ${url}`);
  });
  await page.goto(`${at}/${hash}`, { waitUntil: "domcontentloaded" });
  await shown(page);
  return page;
}

// Waits until the view has been filled.
const shown = (page) => page.waitForFunction(() => Number(document.documentElement.dataset.shown) > 0 && document.querySelector("main h1"));
const text = (page, selector = "main") => page.$eval(selector, (element) => element.innerText);

async function says(page, pattern, selector = "main") {
  await page.waitForFunction((source, at) => new RegExp(source, "s").test(document.querySelector(at)?.innerText ?? ""), {}, pattern.source, selector)
    .catch(async () => assert.fail(`${selector} does not come to say ${pattern}: ${await text(page, selector)}`));
}

async function go(page, hash, pattern) {
  await page.evaluate((to) => { location.hash = to; }, hash);
  await says(page, pattern);
  await accessible(page);
}

async function click(page, selector, words) {
  // A view that is drawn anew between the search and the click would lose the element.
  const clicked = (at, said) => {
    const found = [...document.querySelectorAll(at)].find((e) => e.innerText.includes(said) && e.checkVisibility());
    found?.click();
    return Boolean(found);
  };
  await page.waitForFunction(clicked, {}, selector, words).catch(() => assert.fail(`no ${selector} with ${words}`));
}

// What every view has to have.
async function accessible(page) {
  const wrong = await page.evaluate(() => {
    const found = [];
    const all = (selector) => [...document.querySelectorAll(selector)];
    if (all("h1").length !== 1) found.push(`${all("h1").length} h1`);
    for (const landmark of ["header", "nav", "main", "footer"]) if (!document.querySelector(landmark)) found.push(`no ${landmark}`);
    for (const th of all("th")) if (!th.scope) found.push("a th without scope");
    for (const table of all("table")) if (!table.caption) found.push("a table without caption");
    for (const field of all("input, select")) if (!document.querySelector(`label[for="${field.id}"]`)) found.push(`no label of ${field.id}`);
    for (const control of all("button, a[href]")) {
      if (!(control.innerText ?? control.textContent).trim() && !control.getAttribute("aria-label") && !control.querySelector("title")) found.push(`no name: ${control.outerHTML.slice(0, 80)}`);
    }
    for (const picture of all("svg[role=img]")) if (!picture.getAttribute("aria-label")) found.push("a picture without words");
    const ids = all("[id]").map((e) => e.id);
    for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`the id ${id} twice`);
    for (const state of all(".state")) if (!/\p{L}/u.test(state.innerText)) found.push("a state by colour alone");
    return [...new Set(found)];
  });
  assert.deepEqual(wrong, []);
}

// A picture for the guide: no wider than a page of text, as high as the content, and without the folder of the test.
async function picture(page, name) {
  if (!pictures) return;
  await page.setViewport({ width: 1000, height: 640 });
  const height = await page.evaluate((path) => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(path, "mesh");
    scrollTo(0, 0);
    return Math.ceil(document.querySelector("footer").getBoundingClientRect().top);
  }, folder);
  const clip = { x: 0, y: 0, width: 1000, height: Math.min(height, 820) };
  await page.screenshot({ path: join(pictures, `${name}.webp`), type: "webp", quality: 80, clip, captureBeyondViewport: true });
  await page.setViewport({ width: 1400, height: 900 });
}

const checks = {
  // Clients with their states; the refusal leads to the object and its line.
  async fleet() {
    const page = await open();
    await says(page, /1 refused.*1 in sync/);
    await accessible(page);
    await says(page, /CDS outbound\|80\|\|web\.example: .*no good.* made from ServiceEntry web-example\.shop .*shop\.yaml:\d+/);
    await says(page, /1 refuse configuration/, "#overview");
    await picture(page, "fleet");
    await page.select("select", "in sync");
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
    assert.ok(!(await text(page, "tbody")).includes("no good"));
    await page.select("select", "refused");
    await page.waitForFunction(() => document.querySelector("tbody").innerText.includes("no good"));
    assert.match(page.url(), /#\/fleet\?state=refused/);
    await click(page, "tbody a", "ServiceEntry web-example.shop");
    await says(page, /no good/, ".problems");
    assert.match(await page.$eval(".wrong", (line) => line.id), /^line-\d+$/);
    await says(page, /outbound\|80\|\|web\.example/);
  },
  // Services, one of them, its graph, and the answers to who may call it.
  async services() {
    const page = await open("#/services");
    await says(page, /cart\.example.*web\.example/);
    await accessible(page);
    await page.waitForSelector(".graph svg .node");
    await picture(page, "services");
    await page.type("[data-search]", "cart");
    await page.waitForFunction(() => document.querySelectorAll(".list tbody tr").length === 1);
    await click(page, "tbody a", "cart.example");
    await says(page, /Accepts mutual TLS\s+✓ STRICT/);
    await says(page, /AuthorizationPolicy cart\.shop/);
    await accessible(page);
    const edges = await page.$$eval(".graph .edge", (all) => all.map((e) => `${e.getAttribute("class")}: ${e.querySelector("title")?.textContent}`));
    assert.ok(edges.includes("edge allowed: policy: may call, mutual TLS"), edges.join("\n"));
    await says(page, /web\.example shop\s+✓ may call\s+✓ mutual TLS\s+a rule of this ALLOW policy matches/);
    await says(page, /other\.example shop\s+✗ may not call\s+✓ mutual TLS\s+no rule of an ALLOW policy matches/);
    await says(page, /plain\.example shop\s+✗ may not call\s+✗ conflict/);
    await picture(page, "service");
    const node = await page.$(".graph a:not(:has(.center))");
    await node.evaluate((link) => link.focus());
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => !location.hash.includes("cart"));
  },
  // An object with its errors at their lines; what it made; one that is refused.
  async objects() {
    const page = await open("#/objects");
    await says(page, /VirtualService/);
    await accessible(page);
    await click(page, ".kinds a", "VirtualService");
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
    await click(page, "tbody a", "broken");
    await says(page, /IST0101/, ".problems");
    await accessible(page);
    const line = (await page.$$eval(".wrong", (all) => all.map((e) => [e.value, e.innerText]))).find(([, said]) => said.includes("nowhere")) ?? [0, ""];
    const file = (await readFile(join(folder, "route.yaml"), "utf8")).split("\n");
    assert.ok(line[1].includes("nowhere") && file[line[0] - 1].includes("nowhere"), `line ${line}`);
    await picture(page, "object");
    await go(page, "#/objects/ServiceEntry/shop/web-example", /Resources that it made \([1-9]/);
    await says(page, /outbound\|80\|\|web\.example.*CDS/);
    await says(page, /Clients \([12]\)/);
    await go(page, "#/objects/DestinationRule/shop/refused", /the document is refused/);
    await says(page, /Refused/, ".problems");
    await picture(page, "refused");
    await go(page, "#/objects/Secret/shop/hidden", /redacted/);
    assert.ok(!(await page.content()).includes("aHVzaA"), "secret data");
  },
  // One client: its types, resources with origins, one resource, the difference from now.
  async proxy() {
    const page = await open("#/fleet?state=refused");
    await says(page, /no good/);
    await click(page, "tbody a", "web.shop");
    await says(page, /Refused.*CDS outbound/);
    await accessible(page);
    await says(page, /CDS resources.*outbound\|80\|\|cart\.example/);
    await says(page, /DestinationRule cart\.shop .*shop\.yaml:\d+/, "#resources");
    await click(page, "#resources button.name", "outbound|80||cart.example");
    await says(page, /Made from DestinationRule cart\.shop.*As the configuration in force makes it.*"name": "outbound\|80\|\|cart\.example"/, "#resource");
    await picture(page, "proxy");
    // The client has not answered yet: what it was sent differs from now once the service changes.
    const shop = await readFile(join(folder, "shop.yaml"), "utf8");
    await writeFile(join(folder, "shop.yaml"), shop.replace('"connectTimeout":"1s"', '"connectTimeout":"7s"'));
    await says(page, /1 to be changed: outbound\|80\|\|cart\.example/);
    await click(page, "#resources button.name", "outbound|80||cart.example");
    await says(page, /Differs from.*\+ +"connectTimeout": "7s"/, "#resource");
    await accessible(page);
  },
  // Pushes with their causes and stages; a change comes by itself.
  async pushes() {
    const page = await open("#/pushes");
    await says(page, /until the last ACK.*#1 /);
    await accessible(page);
    await writeFile(join(folder, "later.yaml"), later("late"));
    await says(page, /ServiceEntry late\.example\.shop/);
    const bars = await page.$$eval("svg.bar", (all) => all.map((bar) => bar.getAttribute("aria-label")));
    assert.match(bars[0], /debounce .* ms, .*build .* ms, publish/);
    await picture(page, "pushes");
    await click(page, "tbody a", "late.example");
    await says(page, /Service late\.example/);
  },
  // Sources: refused documents lead to their objects; a held deletion is confirmed by the button, after a question.
  async sources() {
    const page = await open("#/sources");
    await says(page, /Refused documents \(2\).*DestinationRule refused\.shop.*DestinationRule x<img src=x onerror=alert\(1\)>\.shop/);
    await says(page, /deletion of 20 objects is held back/);
    await accessible(page);
    await says(page, /sources hold a deletion/, "#overview");
    await picture(page, "sources");
    await click(page, ".held button", "Confirm");
    await page.waitForSelector("dialog[open] #confirm-yes");
    assert.equal(await page.evaluate(() => document.activeElement.innerText), "Keep them");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => !document.querySelector("dialog[open]"));
    assert.match(await text(page), /is held back/);
    await click(page, ".held button", "Confirm");
    await page.waitForSelector("#confirm-yes");
    await page.click("#confirm-yes");
    await says(page, /✓ 20 objects of .* are deleted/, "#confirmed");
    await page.waitForFunction(() => !document.querySelector(".held"));
    // Another origin of the same machine has no such button.
    const other = await browser.newPage();
    await other.goto(`${base.replace("127.0.0.1", "localhost")}/`);
    const status = await other.evaluate(async (to) => {
      const sent = await fetch(`${to}/dashboard/api/confirm?source=x`, { method: "POST", headers: { "x-pilothouse-dashboard": "1" } }).catch((e) => e);
      return sent instanceof Error ? "refused by the browser" : sent.status;
    }, base);
    assert.equal(status, "refused by the browser");
    faults.splice(0, faults.length, ...faults.filter((fault) => !fault.includes("CORS") && !fault.includes("Failed to load")));
  },
  // The analysis, by level, each message with its object.
  async analysis() {
    const page = await open("#/analysis");
    await says(page, /IST0101.*nowhere/);
    await accessible(page);
    await picture(page, "analysis");
    await page.select("select", "Info");
    await page.waitForFunction(() => !document.querySelector("tbody").innerText.includes("IST0101"));
    await page.select("select", "Error");
    await page.waitForFunction(() => document.querySelector("tbody").innerText.includes("IST0101"));
    await click(page, "tbody a", "VirtualService shop/broken");
    await says(page, /IST0101/, ".problems");
  },
  // Light and dark: as the system has it, by the button, remembered; texts are readable in both.
  async themes() {
    const page = await open();
    const dark = () => page.$eval("html", (html) => html.dataset.theme);
    assert.equal(await dark(), "light");
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
    await page.reload();
    await shown(page);
    await says(page, /refused/);
    assert.equal(await dark(), "dark");
    for (const theme of ["dark", "light"]) {
      assert.equal(await dark(), theme);
      const poor = await page.evaluate(contrast);
      assert.deepEqual(poor, [], theme);
      await picture(page, `fleet-${theme}`);
      await page.click("#theme");
    }
    await page.reload();
    assert.equal(await dark(), "dark", "the choice is remembered");
    assert.equal(await page.$eval("#theme", (button) => button.getAttribute("aria-pressed")), "true");
  },
  // Everything by the keyboard.
  async keyboard() {
    const page = await open();
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.id), "skip");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
    for (const [key, hash] of [["s", "services"], ["o", "objects"], ["p", "pushes"], ["r", "sources"], ["a", "analysis"], ["f", "fleet"]]) {
      await page.keyboard.press("g");
      await page.keyboard.press(key);
      await page.waitForFunction((wanted) => location.hash === `#/${wanted}`, {}, hash);
      // The address changes before the view does.
      await page.waitForFunction((wanted) => document.querySelector("nav a[aria-current=page]").dataset.view === wanted, {}, hash);
      await page.waitForFunction(() => document.activeElement.id === "title");
    }
    await says(page, /no good/);
    await page.keyboard.press("/");
    await page.keyboard.type("zzz g s");
    await says(page, /No client/);
    assert.match(page.url(), /#\/fleet/);
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await page.waitForSelector("dialog[open]");
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => !document.querySelector("dialog[open]"));
    await page.keyboard.press("d");
    assert.equal(await page.$eval("html", (html) => html.dataset.theme), "dark");
  },
  // A change is shown without a reload, the focus stays; without the server the page says so, and a page that is opened meanwhile too.
  async live() {
    const line = await relay();
    const page = await open("#/services", line.at);
    await says(page, /● live/, "#live");
    await page.focus("[data-search]");
    await writeFile(join(folder, "later.yaml"), later("fresh"));
    await says(page, /fresh\.example/);
    assert.ok(await page.evaluate(() => document.activeElement.matches("[data-search]")));
    line.cut();
    await says(page, /not connected/, "#live");
    await line.join();
    await says(page, /● live/, "#live");
    await writeFile(join(folder, "again.yaml"), later("second"));
    await says(page, /second\.example/);
    faults.splice(0, faults.length, ...faults.filter((fault) => !fault.includes("net::ERR_")));
  },
  // More pages than a browser opens connections to one server: each is live, and the last that is open stays so.
  async tabs() {
    const pages = await Promise.all(Array.from({ length: 9 }, () => open("#/services")));
    for (const page of pages) await says(page, /● live/, "#live");
    await writeFile(join(folder, "later.yaml"), later("fresh"));
    for (const page of pages) {
      await page.bringToFront();
      await says(page, /fresh\.example/);
    }
    const last = pages.pop();
    for (const page of pages) await page.close();
    await writeFile(join(folder, "again.yaml"), later("second"));
    await says(last, /second\.example/);
  },
  // A large mesh: time to open, memory, and pages that are open side by side.
  async load() {
    const cdp = async (page, method) => (await page.createCDPSession()).send(method);
    const began = Date.now();
    const page = await open();
    const opened = Date.now() - began;
    const figures = { opened, views: {}, heap: 0 };
    for (const [hash, pattern] of [["#/services", /of 10,?000|10,?000 found/], ["#/objects", /found/], ["#/pushes", /#\d+ /], ["#/sources", /Objects/], ["#/fleet", /1,?000 found/]]) {
      const start = Date.now();
      await page.evaluate((to) => { location.hash = to; }, hash);
      await says(page, pattern);
      figures.views[hash] = Date.now() - start;
    }
    await cdp(page, "HeapProfiler.collectGarbage");
    const metrics = await page.metrics();
    figures.heap = metrics.JSHeapUsedSize;
    figures.nodes = metrics.Nodes;
    const processes = await (await browser.target().createCDPSession()).send("SystemInfo.getProcessInfo").catch(() => null);
    figures.processes = processes?.processInfo.length;
    figures.renderer = await resident(processes?.processInfo.filter((p) => p.type === "renderer").map((p) => p.id) ?? []);
    const others = await Promise.all(["", "#/services", "#/objects", "#/pushes", "#/sources", "#/fleet", "#/services", "#/pushes", "#/fleet"].map((hash) => open(hash)));
    console.log(`FIGURES ${JSON.stringify(figures)}`);
    await writeFile(join(`${folder}.profile`, "ten-pages-open"), String(others.length + 1));
    await new Promise((done) => setTimeout(done, Number(process.env.PAGES_OPEN_MS ?? 20_000)));
  },
};

async function resident(ids) {
  let most = 0;
  for (const id of ids) {
    const status = await readFile(`/proc/${id}/status`, "utf8").catch(() => "");
    const anonymous = Number(/RssAnon:\s+(\d+)/.exec(status)?.[1] ?? 0);
    most = Math.max(most, anonymous);
  }
  return most * 1024;
}

// A way to the server that can be cut and joined again.
async function relay() {
  const to = new URL(base);
  const ends = new Set();
  const server = createServer((near) => {
    const far = connect(Number(to.port), to.hostname);
    for (const [one, other] of [[near, far], [far, near]]) {
      ends.add(one);
      one.on("error", () => {}).on("close", () => { ends.delete(one); other.destroy(); });
      one.pipe(other);
    }
  });
  const join = (port) => new Promise((done) => server.listen(port, to.hostname, done));
  await join(0);
  server.unref();
  const { port } = server.address();
  const cut = () => {
    server.close();
    for (const end of ends) end.destroy();
  };
  return { at: `http://${to.hostname}:${port}`, cut, join: () => join(port) };
}

function later(name) {
  const object = {
    apiVersion: "networking.istio.io/v1", kind: "ServiceEntry", metadata: { name, namespace: "shop" },
    spec: { hosts: [`${name}.example`], resolution: "STATIC", ports: [{ number: 80, name: "http", protocol: "HTTP" }], endpoints: [{ address: "10.0.9.9" }] },
  };
  return JSON.stringify(object);
}

// The elements whose text has less than 4.5 to 1 against what is behind it.
function contrast() {
  const parse = (color) => color.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const of = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * of(r) + 0.7152 * of(g) + 0.0722 * of(b);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const poor = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || element.disabled || element.closest(".hidden, dialog:not([open])")) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.add(`${element.tagName}.${element.className}: ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  }
  return [...poor];
}

try {
  await checks[wanted]();
  assert.deepEqual(faults, []);
} catch (error) {
  console.error(error);
  if (faults.length) console.error(faults);
  process.exitCode = 1;
}
await browser.close();
