// The page put together. Where somebody is stands in the address, as #/device/tab, so that it can be kept and shared.

import { ask, fetched } from "./asking.js";
import { Charts } from "./charts.js";
import { Device, DeviceList, setText } from "./devices.js";
import { Feed } from "./feed.js";
import { Files } from "./files.js";
import { Signing } from "./signing.js";
import { ReplTerminal } from "./terminal.js";

const TABS = ["live", "files", "terminal"];
// What each takes; live data are shown as not granted rather than hidden.
const TAKES = { files: "read", terminal: "exec" };
const get = (id) => document.getElementById(id);

const devices = new Map();
let chosen = null;
let tab = "live";
// Updates that the server did not send because the page did not take them in time.
let skipped = 0;
let newest = null;
// How far down the list somebody was when they chose a device.
let leftAt = 0;
const turns = matchMedia("(max-width: 760px)");

const list = new DeviceList((name) => go(name, tab));
const charts = new Charts(get("charts"));
const files = new Files();
const terminal = new ReplTerminal();
// The feed begins when it is known who looks.
let feed = null;
const signing = new Signing(() => {
  feed ??= new Feed(heard, changed, () => signing.leave("The token is no longer good. Sign in again."));
  arrive();
  showPlots();
});
list.changed = drawSoon;

function changed(state) {
  const element = get("connection");
  element.dataset.state = state;
  if (state !== "live") newest = null;
  if (state !== "lost") setText(element, state === "live" ? "connected" : state);
  drawSoon();
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
  drawSoon();
}

// At most once a frame, however much comes.
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
  const counts = list.show(devices, now, connected, chosen);
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
    return;
  }
  const state = device.state(now, connected);
  get("state").dataset.state = state;
  setText(get("state"), device.said(now, connected));
  setText(get("url"), device.url ?? "");
  for (const [each, verb] of Object.entries(TAKES)) {
    get(`tab-${each}`).hidden = !device.may(verb);
    if (tab === each && !device.may(verb)) go(chosen, "live");
  }
  get("upload").hidden = !device.may("write");
  get("not-granted").hidden = device.may("session");
  get("newest").hidden = !device.may("session");
  get("trouble").hidden = !device.trouble;
  setText(get("trouble"), device.trouble ?? "");
  get("device").classList.toggle("old", state === "stale" || state === "trouble");
  fact("Line", device.open ? "open" : "closed");
  fact("Rows/s", String(connected ? device.rate ?? 0 : "–"));
  fact("Rows seen", String(device.rows ?? 0));
  fact("Dropped", String(device.lost ?? 0));
  fact("Held by", device.holder ?? "nobody");
  fact("Recording", device.recording ?? "no");
  files.freed(device.holder);
  if (tab === "live") {
    charts.show(device);
    if (!device.may("session")) get("no-numbers").hidden = true;
    setText(get("line"), device.line ?? "");
  }
}

const facts = new Map();
function fact(title, text) {
  if (!facts.has(title)) {
    const pair = document.createElement("div");
    const [term, value] = ["dt", "dd"].map((tag) => pair.appendChild(document.createElement(tag)));
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

function arrive() {
  if (feed === null) return;
  const [, name, to] = location.hash.split("/");
  const before = chosen;
  chosen = name ? decodeURIComponent(name) : null;
  tab = TABS.includes(to) ? to : "live";
  get("device").hidden = chosen === null;
  if (before === null) leftAt = scrollY;
  document.body.toggleAttribute("data-chosen", chosen !== null);
  // Where the two take turns, each is seen from where it was left, or from its top.
  if (before !== chosen && turns.matches) scrollTo(0, chosen === null ? leftAt : 0);
  for (const each of TABS) {
    get(each).hidden = each !== tab;
    const button = get(`tab-${each}`);
    button.setAttribute("aria-selected", String(each === tab));
    button.tabIndex = each === tab ? 0 : -1;
  }
  if (tab === "files" && chosen !== null) files.open(chosen);
  else files.leave();
  terminal.choose(chosen, tab === "terminal");
  drawSoon();
}

for (const [place, each] of TABS.entries()) {
  const button = get(`tab-${each}`);
  button.addEventListener("click", () => go(chosen, each));
  button.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: 1, End: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    // To the first from before it, to the last from behind it.
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
// Ages go on while nothing comes.
setInterval(drawSoon, 200);
signing.begin();

async function showPlots() {
  const { plots } = await (await ask("/plots")).json();
  get("plots").hidden = plots.length === 0;
  get("images").replaceChildren(
    ...plots.map((url) => {
      const figure = document.createElement("figure");
      const image = figure.appendChild(document.createElement("img"));
      image.loading = "lazy";
      fetched(url).then((src) => (image.src = src), () => figure.remove());
      image.alt = decodeURIComponent(url.slice(url.lastIndexOf("/") + 1)).replace(/\.png$/, "").replaceAll("_", " ");
      figure.appendChild(document.createElement("figcaption")).textContent = image.alt;
      return figure;
    }),
  );
}
