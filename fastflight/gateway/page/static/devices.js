// What the page knows of each device: its state, its newest line and the newest points of its columns.

import { decimalsOf, isClock, unitOf, written } from "./columns.js";
import { History, OPENED_POINTS } from "./history.js";

const MAX_MARKS = 300;
// Points that decide whether a column is a time or a count.
const CLOCK_POINTS = 300;
// Points that decide how many digits a column's newest value is shown with.
const DIGIT_POINTS = 60;
// Data on a card that is younger is "now": ages that change ten times a second cannot be read.
const NOW_MS = 2000;
// In the order in which the overview shows them.
export const STATES = ["trouble", "stale", "live", "quiet", "closed"];

// What holds a device and may change it, by the names that the server gives.
const CHANGES = /device\.(tree|exec|reset)|file\.|session|bridge|mount/;

export class Device {
  constructor(name) {
    this.name = name;
    this.history = new History();
    this.columns = [];
    // What stood out in its lines since the page was opened, by time and kind.
    this.marks = new Map();
    this.charted = { at: undefined, names: [] };
    this.digits = { at: undefined, columns: new Map() };
  }

  // Apply a message of the feed: everything (`whole`), or what has changed.
  take(change, whole) {
    const { points, marks = [], ...rest } = change;
    // Deployments, resets, terminals and code have a device for a while; whoever only reads leaves no mark.
    if (rest.holder && rest.holder !== this.holder && CHANGES.test(rest.holder)) {
      marks.push({ time: this.newest ?? Date.now(), kind: "use", text: `held by ${rest.holder}` });
    }
    Object.assign(this, rest);
    for (const mark of marks) this.marks.set(`${mark.time} ${mark.kind}`, mark);
    for (const key of [...this.marks.keys()].slice(0, Math.max(0, this.marks.size - MAX_MARKS))) this.marks.delete(key);
    if (whole) this.history.rejoin(points ?? [], this.columns);
    else if (points) this.history.add(points, this.columns);
    // From when on the page has seen what the device prints.
    this.since ??= this.history.oldest;
  }

  // Keep more points from now on: the device is looked at.
  keepMore() {
    this.history.limit = OPENED_POINTS;
  }

  unitOf(name) {
    return unitOf(name);
  }

  // Whether the user may "read", "write", "session" or "exec" here.
  may(verb) {
    return this.granted?.includes(verb) ?? true;
  }

  // The time of the newest point.
  get newest() {
    return this.history.newest;
  }

  // The names of the columns that are charted: all but times and counts. Before the device prints, they are those of its
  // recording (see `Archive.discover`).
  names() {
    const columns = this.columns.length ? this.columns : (this.recorded?.columns ?? []);
    const at = `${this.newest} ${columns.length}`;
    if (this.charted.at !== at) {
      const names = columns.filter((name) => !isClock(name, this.history.recent(name, CLOCK_POINTS)));
      this.charted = { at, names };
    }
    return this.charted.names;
  }

  // A column's newest value as text with its unit, or "" if there is none.
  current(name) {
    const values = this.history.recent(name, DIGIT_POINTS);
    return values.length ? this.written(name, values.at(-1)) : "";
  }

  // How many digits after the point a column has.
  decimals(name) {
    const { columns, at } = this.digits;
    if (at !== this.newest) columns.clear();
    this.digits.at = this.newest;
    if (!columns.has(name)) columns.set(name, decimalsOf(this.history.recent(name, DIGIT_POINTS)));
    return columns.get(name);
  }

  // A value of a column as text with its unit.
  written(name, value, decimals = this.decimals(name)) {
    const unit = unitOf(name);
    const text = written(value, decimals);
    return unit ? `${text} ${unit}` : text;
  }

  // One of STATES, by the server's clock. Without a connection to the server, data is stale.
  state(now, connected) {
    if (this.trouble) return "trouble";
    if (this.last == null) return this.open ? "quiet" : "closed";
    return connected && now - this.last <= this.late ? "live" : "stale";
  }

  // The state in words, with the age of the newest data.
  describe(now, connected) {
    const state = this.state(now, connected);
    const age = this.last == null ? "" : ago(now - this.last);
    if (state === "trouble") return age ? `trouble, last data ${age}` : "trouble";
    if (!this.may("session")) return state === "closed" ? "not open" : "open; its data is not for you";
    if (state === "quiet") return "open, has sent nothing yet";
    if (state === "closed") return "not open";
    return `${state}, ${age}`;
  }

  // The same for a card.
  describeShort(now, connected) {
    const state = this.state(now, connected);
    if (this.last == null || !this.may("session")) return state;
    const age = now - this.last;
    return state === "live" && age < NOW_MS ? "live, now" : `${state}, ${ago(age)}`;
  }
}

export function ago(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s ago`;
  if (seconds < 120) return `${Math.floor(seconds)} s ago`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ago`;
  return `${Math.floor(seconds / 3600)} h ago`;
}

// What is missing from the data of a device, in words.
export function describeGap(gap) {
  const [from, to] = [gap.from, gap.to].map((time) => time && new Date(time).toLocaleTimeString());
  const span = from || to ? `${from ?? "?"} to ${to ?? "now"}: ` : "";
  return `${span}${gap.why}${gap.rows ? `, ${gap.rows} rows` : ""}${gap.bytes == null ? "" : `, ${gap.bytes} bytes`}${gap.detail ? ` (${gap.detail})` : ""}`;
}

// How often a device has crashed, and the newest crash, in words.
export function describeCrashes({ count, last, error, place }) {
  return `${count}: ${error} at ${place}, last ${new Date(last).toLocaleString()}`;
}

// Set text of an element. Content from devices is only ever set like this, never as HTML.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
