// Puts the page together. The address says what is shown: #/device/tab, #/sql, #/cluster, or nothing for the overview.

import { Archive } from "./archive.js";
import { ChartMenu } from "./chartmenu.js";
import { Charts } from "./charts.js";
import { Cluster } from "./cluster.js";
import { describeCrashes, describeGap, Device, setText } from "./devices.js";
import { Feed } from "./feed.js";
import { Files } from "./files.js";
import * as link from "./link.js";
import { Overview } from "./overview.js";
import { Signing } from "./signing.js";
import { Sql } from "./sql.js";
import { ReplTerminal } from "./terminal.js";
import { describeTime } from "./ticks.js";
import { Timeline } from "./timeline.js";
import { TimeView } from "./timeview.js";
import { ViewBar } from "./viewbar.js";

const TABS = ["live", "files", "terminal"];
// The scope that a tab needs. Without it the tab is hidden; "live" says what is missing instead.
const NEEDED = { files: "read", terminal: "exec" };
// Addresses that are no devices: those have a tab, too.
const VIEWS = { "#/sql": "sql", "#/cluster": "cluster" };
// A browser limits how often an address is changed.
const LINK_MS = 300;
const get = (id) => document.getElementById(id);

const devices = new Map();
let chosen = null;
let tab = "live";
// The only device, if the server has just one. It is shown without being chosen.
let only = null;
// Updates that the server did not send because the page did not take them in time.
let skipped = 0;
let newest = null;
// How far down the overview the user was when choosing a device.
let leftAt = 0;

const overview = new Overview((name) => go(name, chosen === null ? "live" : tab));
const timeView = new TimeView(() => charts.dirty(), moved);
const archive = new Archive(() => charts.dirty());
const charts = new Charts(get("charts"), timeView, { find: (name) => devices.get(name), archive, menu: (chart) => menu.open(chart) });
const menu = new ChartMenu(charts, devices);
const timeline = new Timeline(timeView);
const viewBar = new ViewBar(timeView);
const files = new Files();
const terminal = new ReplTerminal();
const cluster = new Cluster();
new Sql();
// The feed is opened once the user is known.
let feed = null;
const signing = new Signing((identity) => {
  feed ??= new Feed(heard, changed, () => signing.leave("The token is no longer valid. Sign in again."));
  arrive();
  get("to-cluster").hidden = !identity.cluster;
});
overview.changed = drawSoon;

function changed(state) {
  const element = get("connection");
  element.dataset.state = state;
  if (state !== "live") newest = null;
  if (state !== "lost") setText(element, state === "live" ? "connected" : state);
  overview.redraw();
}

function heard(message) {
  const whole = message.type === "all";
  if (newest !== null && message.tick > newest + 1) skipped += message.tick - newest - 1;
  newest = message.tick;
  if (whole) for (const name of devices.keys()) if (!(name in message.devices)) devices.delete(name);
  for (const [name, change] of Object.entries(message.devices)) {
    if (!devices.has(name)) devices.set(name, new Device(name));
    devices.get(name).take(change, whole);
  }
  get("alert").hidden = !message.trouble;
  setText(get("alert"), message.trouble || "");
  const before = only;
  only = devices.size === 1 ? devices.keys().next().value : null;
  if (only !== before) arrive();
  if (whole) overview.redraw();
  else drawSoon();
}

// At most once a frame, however many messages come.
let waiting = false;
function drawSoon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    draw();
  });
}

function draw() {
  if (feed === null) return;
  const now = feed.now();
  const connected = feed.current === "live";
  if (feed.current === "lost") {
    const seconds = Math.max(0, Math.ceil((feed.retryAt - performance.now()) / 1000));
    setText(get("connection"), seconds ? `connection lost, again in ${seconds} s` : "connection lost, trying again");
  }
  get("connection").title = skipped ? `${skipped} updates were skipped: this page was too slow for them` : "";
  const counts = overview.show(devices, now, connected, chosen);
  const rate = connected ? [...devices.values()].reduce((sum, device) => sum + (device.rate ?? 0), 0) : 0;
  setText(get("totals"), devices.size ? `${counts.get("live")}/${devices.size} live · ${Math.round(rate)} rows/s` : "");
  if (chosen !== null) drawChosen(devices.get(chosen), now, connected);
}

function drawChosen(device, now, connected) {
  setText(get("name"), chosen);
  get("known").hidden = !device;
  get("unknown").hidden = device || !devices.size;
  if (!device) {
    get("state").dataset.state = "trouble";
    setText(get("state"), devices.size ? "no such device" : "");
    setText(get("url"), "");
    return;
  }
  const state = device.state(now, connected);
  get("state").dataset.state = state;
  setText(get("state"), device.describe(now, connected));
  setText(get("url"), device.url ?? "");
  for (const [each, scope] of Object.entries(NEEDED)) {
    const usable = device.may(scope) && device.kind !== "lines";
    get(`tab-${each}`).hidden = !usable;
    if (tab === each && !usable) go(chosen, "live");
  }
  get("files").toggleAttribute("data-may-write", device.may("write"));
  get("not-granted").hidden = device.may("session");
  get("newest").hidden = !device.may("session");
  get("trouble").hidden = !device.trouble;
  setText(get("trouble"), device.trouble ?? "");
  get("device").classList.toggle("old", state === "stale" || state === "trouble");
  fact("Line", device.open ? "open" : "closed");
  fact("Rows/s", String((connected && device.rate) ?? "–"));
  fact("Rows seen", String(device.rows ?? 0));
  fact("Dropped", String(device.lost ?? 0));
  fact("Held by", device.holder ?? "nobody");
  fact("Recording", device.recording ?? "no");
  fact("Crashes", device.crashes ? describeCrashes(device.crashes) : "none");
  files.freed(device.holder);
  if (tab === "live") {
    if (!device.columns.length && device.may("session")) archive.discover(device);
    const hasCharts = charts.current(device).length > 0;
    charts.show(device);
    get("no-numbers").hidden = hasCharts || !device.may("session");
    viewBar.show(device, hasCharts, notes(device));
    timeline.show(device);
    setText(get("line"), device.line ?? "");
    showGaps(device.gaps ?? []);
  }
}

// What the charts do not show, in sentences.
function notes(device) {
  const { why, pending, since } = archive.of(device);
  const oldest = Math.min(device.history.oldest ?? Infinity, since);
  if (timeView.range.from >= oldest) return [];
  if (pending) return ["Reading older rows…"];
  if (!why || oldest === Infinity) return [];
  return [`Nothing from before ${describeTime(oldest)}: ${why}.`];
}

// The newest first.
function showGaps(gaps) {
  get("missing").hidden = !gaps.length;
  const texts = gaps.map(describeGap).reverse();
  while (get("gaps").childElementCount > texts.length) get("gaps").lastChild.remove();
  for (const [index, text] of texts.entries()) {
    setText(get("gaps").children[index] ?? get("gaps").appendChild(document.createElement("li")), text);
  }
}

const facts = new Map();
function fact(title, text) {
  if (!facts.has(title)) {
    const pair = document.createElement("div");
    const [term, value] = ["dt", "dd"].map((each) => pair.appendChild(document.createElement(each)));
    term.textContent = title;
    get("facts").append(pair);
    facts.set(title, value);
  }
  setText(facts.get(title), text);
  facts.get(title).title = text;
}

function go(name, to) {
  location.hash = name === null ? "" : `#/${encodeURIComponent(name)}/${to}`;
}

// Put what the charts show into the address, once the user rests.
let linkTimer = 0;
function moved() {
  drawSoon();
  clearTimeout(linkTimer);
  linkTimer = setTimeout(() => {
    if (chosen === null || tab !== "live") return;
    const query = link.written(timeView, charts.layout, chosen);
    history.replaceState(null, "", `#/${encodeURIComponent(chosen)}/live${query && "?"}${query}`);
  }, LINK_MS);
}

// Show what the address says.
function arrive() {
  if (feed === null) return;
  const [path, query] = location.hash.split("?", 2);
  const [, name, to] = path.split("/");
  const before = document.body.dataset.view;
  const view = VIEWS[location.hash] ?? (name || only ? "device" : "overview");
  if (view !== "device") chosen = null;
  else chosen = name ? decodeURIComponent(name) : only;
  tab = TABS.includes(to) ? to : "live";
  if (chosen !== charts.device?.name) {
    timeView.reset();
    charts.leave();
  }
  if (query && chosen !== null) {
    const { layout, ...times } = link.read(query, chosen);
    Object.assign(timeView, times);
    charts.layout = layout;
    charts.dirty();
  }
  if (before === "overview" && view !== "overview") leftAt = scrollY;
  document.body.dataset.view = view;
  // A single device needs no list of devices.
  document.body.toggleAttribute("data-single", chosen !== null && chosen === only);
  get("fleet").hidden = Object.values(VIEWS).includes(view);
  get("device").hidden = view !== "device";
  for (const each of Object.values(VIEWS)) get(each).hidden = view !== each;
  if (before !== view) scrollTo(0, view === "overview" ? leftAt : 0);
  for (const each of TABS) {
    get(each).hidden = each !== tab;
    const button = get(`tab-${each}`);
    button.setAttribute("aria-selected", String(each === tab));
    button.tabIndex = each === tab ? 0 : -1;
  }
  if (tab === "files" && chosen !== null) files.open(chosen);
  else files.leave();
  cluster.show(view === "cluster");
  terminal.choose(chosen, tab === "terminal");
  overview.redraw();
  if (before !== view && view === "device") requestAnimationFrame(() => overview.reveal(chosen));
}

for (const [place, each] of TABS.entries()) {
  const button = get(`tab-${each}`);
  button.addEventListener("click", () => go(chosen, each));
  button.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: 1, End: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    // Home is one step forward from before the first tab, End one step back from behind the last.
    let to = event.key === "Home" ? -1 : event.key === "End" ? TABS.length : place;
    do to = (to + step + TABS.length) % TABS.length;
    while (get(`tab-${TABS[to]}`).hidden);
    const next = TABS[to];
    go(chosen, next);
    get(`tab-${next}`).focus();
  });
}
get("back").addEventListener("click", () => go(null));
addEventListener("hashchange", arrive);
// Ages grow while no messages come.
setInterval(drawSoon, 200);
signing.begin();
