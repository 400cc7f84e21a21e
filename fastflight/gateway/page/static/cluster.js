// The cluster: its servers, the owner of each device, and the copies of what NATS stores. Asked for while it is shown.

import { ask } from "./asking.js";
import { tableOf } from "./rows.js";

const EVERY_MS = 3000;
// There may be many thousands of devices.
const MAX_SHOWN_DEVICES = 200;
const MAX_WRONG = 20;
const get = (id) => document.getElementById(id);

export class Cluster {
  constructor() {
    this.shown = false;
    // Counts the requests, so that an answer that is no longer wanted is not drawn.
    this.turn = 0;
    this.known = null;
    // The rows of each table, as they were drawn.
    this.drawn = new Map();
    get("cluster-search").addEventListener("input", () => this.drawDevices());
    document.addEventListener("visibilitychange", () => this.show(this.shown));
  }

  show(shown) {
    this.shown = shown;
    this.turn += 1;
    if (shown && !document.hidden) this.refresh();
  }

  // The next request follows the answer, so that a slow server is not asked more often than it can answer.
  async refresh() {
    const turn = this.turn;
    let [known, failure] = [null, null];
    try {
      known = await (await ask("/cluster")).json();
    } catch (error) {
      failure = error;
    }
    if (turn !== this.turn) return;
    if (known !== null) this.draw(known);
    get("cluster-known").classList.toggle("old", failure !== null);
    get("cluster-said").classList.toggle("failed", failure !== null);
    if (failure !== null) get("cluster-said").textContent = failure.message;
    setTimeout(() => turn === this.turn && this.refresh(), EVERY_MS);
  }

  draw(known) {
    this.known = known;
    const { servers, devices, replicas, waiting, oldest_waiting, unanswered } = known;
    const unknown = unanswered.length ? `, without those of ${unanswered.map((each) => each.name).join(", ")}` : "";
    const rows = Object.values(waiting).reduce((sum, each) => sum + each, 0);
    const oldest = Object.values(oldest_waiting).reduce((most, each) => Math.max(most, each.seconds), 0);
    get("cluster-said").textContent =
      `${counted(servers.length, "server")}, ${counted(devices.length, "device")}, ` +
      `${counted(rows, "recorded row")} not stored in NATS yet${rows ? `, the oldest for ${seconds(oldest)}` : ""}${unknown}. ` +
      `As ${known.server} sees it.`;
    const wrong = wrongOf(known);
    const more = wrong.length - MAX_WRONG;
    const said = more > 0 ? [...wrong.slice(0, MAX_WRONG), `${more} more`] : wrong;
    get("cluster-wrong").replaceChildren(
      ...said.map((text) => Object.assign(document.createElement("li"), { textContent: text })),
    );
    this.drawTable(
      "cluster-servers",
      servers.map((each) => ({
        Server: linked(each.name, each.http ?? ""),
        Devices: each.devices,
        Address: each.location,
      })),
    );
    this.drawTable(
      "cluster-copies",
      replicas.map((each) => ({
        "Stream or bucket": each.name,
        "Current copies": `${each.current} of ${each.replicas}`,
        Leader: each.leader ?? "–",
        Behind: each.behind.join(", ") || "–",
      })),
    );
    this.drawDevices();
    get("cluster-known").hidden = false;
  }

  // Devices without an owner come first, then those of which most rows wait. Only the number of digits counts, so that
  // rows do not change their places all the time.
  drawDevices() {
    if (this.known === null) return;
    const { devices, waiting, oldest_waiting, unanswered } = this.known;
    const silent = new Set(unanswered.map((each) => each.name));
    const sought = get("cluster-search").value.trim().toLowerCase();
    const found = devices.filter((each) => `${each.name}\n${each.owner ?? ""}`.toLowerCase().includes(sought));
    const rank = (each) => (each.owner === null ? Infinity : String(waiting[each.name] ?? 0).length);
    const ranked = found.map((each) => [rank(each), each]).sort(([one], [other]) => (one === other ? 0 : other - one));
    this.drawTable(
      "cluster-devices",
      ranked.slice(0, MAX_SHOWN_DEVICES).map(([, each]) => ({
        Device: linked(each.name, `#/${encodeURIComponent(each.name)}/live`),
        Owner: each.owner ?? "none",
        // Nothing for a device that is not recorded.
        ...((Object.keys(waiting).length > 0 || silent.size > 0) && {
          "Rows waiting": silent.has(each.owner) ? "unknown" : (waiting[each.name] ?? null),
          Oldest: each.name in oldest_waiting ? seconds(oldest_waiting[each.name].seconds) : null,
        }),
      })),
    );
    get("cluster-shown").textContent =
      found.length > MAX_SHOWN_DEVICES
        ? `The first ${MAX_SHOWN_DEVICES} of ${number(found.length)}. Search to see others.`
        : `${number(found.length)} of ${number(devices.length)}`;
  }

  // Draw a table if its rows have changed. The link that has the focus keeps it.
  drawTable(id, rows) {
    const text = JSON.stringify(rows, (_, value) => (value instanceof Element ? value.outerHTML : value));
    if (this.drawn.get(id) === text) return;
    this.drawn.set(id, text);
    const place = get(id);
    const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    if (rows.length) place.replaceChildren(tableOf(rows));
    else place.textContent = "None.";
    if (focused !== null) place.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }
}

function wrongOf({ server, trouble, servers, devices, replicas, unanswered }) {
  return [
    ...(trouble ? [`${server} is not a member of its cluster: ${trouble}`] : []),
    ...unanswered.map((each) => `${each.name} gives no answer at ${each.location}: ${each.why}. Check its --cluster-location and its token_file`),
    ...servers.flatMap((each) => each.differs.map((what) => `The fleet file of ${each.name} differs: ${what}`)),
    ...(replicas.length ? [] : ["NATS does not say which copies it has"]),
    ...replicas
      .filter((each) => each.current < Math.max(each.replicas, each.wanted ?? 0))
      .map((each) => {
        const behind = each.behind.length ? `: ${each.behind.join(", ")}` : "";
        return `${each.name} has ${each.current} of ${Math.max(each.replicas, each.wanted ?? 0)} copies${behind}`;
      }),
    ...devices
      .filter((each) => each.owner === null || each.why)
      .map((each) => `${each.name}${each.owner === null ? " has no owner" : ""}${each.why ? `: ${each.why}` : ""}`),
  ];
}

const seconds = (age) => `${age.toLocaleString("en", { maximumFractionDigits: 1 })} s`;
const number = (count) => count.toLocaleString("en");
const counted = (count, what) => `${number(count)} ${what}${count === 1 ? "" : "s"}`;

// A link to a page; plain text for an address that is none.
function linked(text, url) {
  if (!/^(https?:\/\/|#)/.test(url)) return text;
  const link = document.createElement("a");
  link.href = url;
  link.textContent = text;
  return link;
}
