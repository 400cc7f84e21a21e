// What the page knows of the devices, and the list of them. Whatever comes from a device is only ever set as text.

const MAX_POINTS = 300;
const SPARK_POINTS = 60;
// Columns that only count on; they are drawn last, and not beside the name.
const COUNTERS = /^(ms|us|ns|ticks(_ms|_us)?|t|time|timestamp|ts|seq|n|uptime|millis)$/i;
export const STATES = ["live", "stale", "trouble", "quiet", "closed"];

export class Device {
  constructor(name) {
    this.name = name;
    this.points = [];
    this.columns = [];
  }

  take(change, whole) {
    const { points, ...rest } = change;
    Object.assign(this, rest);
    if (whole) this.points = points ?? [];
    else if (points) this.points = this.points.concat(points).slice(-MAX_POINTS);
  }

  // Whether who looks may do that here: "read", "write", "session", "exec".
  may(verb) {
    return this.granted?.includes(verb) ?? true;
  }

  // One of STATES, by the server's clock. What nobody hears any more is stale, whatever it was.
  state(now, connected) {
    if (this.trouble) return "trouble";
    if (this.last == null) return this.open ? "quiet" : "closed";
    return connected && now - this.last <= this.late ? "live" : "stale";
  }

  // The same in words, with the age of the data.
  said(now, connected) {
    const state = this.state(now, connected);
    const heard = this.last == null ? "" : ago(now - this.last);
    if (state === "trouble") return heard ? `trouble, last data ${heard}` : "trouble";
    if (!this.may("session")) return state === "closed" ? "not open" : "open; not yours to hear";
    if (state === "quiet") return "open, has said nothing yet";
    if (state === "closed") return "not open";
    return `${state}, ${heard}`;
  }
}

// The places of columns in the order in which they are shown.
export function order(columns) {
  const places = columns.map((_, place) => place);
  return places.sort((one, other) => COUNTERS.test(columns[one]) - COUNTERS.test(columns[other]) || one - other);
}

export function ago(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s ago`;
  if (seconds < 120) return `${Math.floor(seconds)} s ago`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ago`;
  return `${Math.floor(seconds / 3600)} h ago`;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export class DeviceList {
  // `choose(name)` when somebody does.
  constructor(choose) {
    this.choose = choose;
    this.cards = new Map();
    this.list = document.getElementById("devices");
    this.search = document.getElementById("search");
    this.only = null;
    this.buttons = new Map();
    for (const state of STATES) {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => {
        this.only = this.only === state ? null : state;
        this.changed();
      });
      this.buttons.set(state, button);
      document.getElementById("states").append(button);
    }
    this.search.addEventListener("input", () => this.changed());
    document.getElementById("choice").addEventListener("submit", (event) => event.preventDefault());
    this.changed = () => {};
  }

  show(devices, now, connected, chosen) {
    const counts = new Map(STATES.map((state) => [state, 0]));
    const wanted = this.search.value.trim().toLowerCase();
    let shown = 0;
    for (const device of devices.values()) {
      const state = device.state(now, connected);
      counts.set(state, counts.get(state) + 1);
      const card = this.card(device);
      const hidden = (this.only !== null && this.only !== state) || !device.name.toLowerCase().includes(wanted);
      if (card.root.hidden !== hidden) card.root.hidden = hidden;
      if (hidden) continue;
      shown++;
      if (card.button.dataset.state !== state) card.button.dataset.state = state;
      card.button.setAttribute("aria-current", String(device.name === chosen));
      setText(card.said, device.said(now, connected));
      setText(card.rate, device.rate ? `${device.rate} rows/s` : "");
      setText(card.badges, badges(device));
      card.draw(device.points, order(device.columns)[0] ?? 0);
    }
    for (const [name, card] of this.cards) {
      if (!devices.has(name)) {
        card.root.remove();
        this.cards.delete(name);
      }
    }
    for (const [state, button] of this.buttons) {
      setText(button, `${state} ${counts.get(state)}`);
      button.setAttribute("aria-pressed", String(this.only === state));
    }
    document.getElementById("none").hidden = shown > 0 || devices.size === 0;
    return counts;
  }

  card(device) {
    let card = this.cards.get(device.name);
    if (!card) {
      card = new Card(device.name, this.choose);
      this.cards.set(device.name, card);
      this.list.append(card.root);
    }
    return card;
  }
}

export function badges(device) {
  const told = [];
  if (device.trouble) told.push(device.trouble);
  if (device.holder) told.push(`held by ${device.holder}`);
  if (device.recording) told.push(device.recording);
  if (device.lost) told.push(`${device.lost} dropped`);
  return told.join(" · ");
}

class Card {
  constructor(name, choose) {
    this.root = document.createElement("li");
    this.button = document.createElement("button");
    this.button.type = "button";
    this.button.className = "card";
    this.button.addEventListener("click", () => choose(name));
    const part = (kind, tag = "span") => {
      const element = document.createElement(tag);
      element.className = kind;
      this.button.append(element);
      return element;
    };
    part("name").textContent = name;
    this.said = part("said");
    this.badges = part("badges");
    this.rate = part("rate");
    this.canvas = part("spark", "canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    this.root.append(this.button);
    this.drawn = null;
  }

  // A column of the newest points, as a line without axes.
  draw(points, column) {
    const newest = points.length ? points[points.length - 1][0] : null;
    if (newest === this.drawn) return;
    this.drawn = newest;
    const scale = devicePixelRatio || 1;
    const [width, height] = [92, 38];
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    const values = points.slice(-SPARK_POINTS).map((point) => point[column + 1]).filter((value) => value != null);
    if (values.length < 2) return;
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
    pen.lineWidth = 1.5;
    pen.lineJoin = "round";
    pen.beginPath();
    values.forEach((value, place) => {
      const x = (place / (values.length - 1)) * (width - 4) + 2;
      const y = high === low ? height / 2 : height - 4 - ((value - low) / (high - low)) * (height - 8);
      place ? pen.lineTo(x, y) : pen.moveTo(x, y);
    });
    pen.stroke();
  }
}
