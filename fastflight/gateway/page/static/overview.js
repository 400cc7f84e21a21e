// The overview of all devices: a card for each, those with trouble first, with search and filters.

import { axisFor } from "./columns.js";
import { STATES, setText } from "./devices.js";

const SPARK_POINTS = 60;
const CARD_VALUES = 3;
const FONT = '11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
// With so few devices there is room for a line of each value: each device in a row of its own, or two beside each other.
const MAX_ROWS = 3;
const MAX_PAIRS = 6;
// How often cards are drawn: numbers that change more often cannot be read, and 300 cards take time.
const DRAW_MS = 500;
// Cards keep their places while the pointer moves over them, so that a click hits what the user has aimed at.
const POINTER_REST_MS = 3000;

const byName = new Intl.Collator(undefined, { numeric: true }).compare;

export class Overview {
  // `choose(name)` is called when the user chooses a device.
  constructor(choose) {
    this.choose = choose;
    this.changed = () => {};
    this.cards = new Map();
    this.list = document.getElementById("devices");
    this.search = document.getElementById("search");
    this.only = null;
    this.buttons = new Map(STATES.map((state) => [state, this.filter(state)]));
    this.counts = new Map(STATES.map((state) => [state, 0]));
    this.drawnAt = -Infinity;
    this.pointedAt = -Infinity;
    // Only cards that can be seen are drawn.
    this.seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const card = this.cards.get(target.dataset.name);
        if (card) card.isSeen = isIntersecting;
      }
      this.redraw();
    });
    this.list.addEventListener("pointermove", () => (this.pointedAt = performance.now()));
    this.list.addEventListener("pointerleave", () => (this.pointedAt = -Infinity));
    this.search.addEventListener("input", () => this.redraw());
    document.getElementById("choice").addEventListener("submit", (event) => event.preventDefault());
  }

  filter(state) {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.state = state;
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      this.only = this.only === state ? null : state;
      this.redraw();
    });
    document.getElementById("states").append(button);
    return button;
  }

  // Draw with the next frame, however long ago the last time was.
  redraw() {
    this.drawnAt = -Infinity;
    this.changed();
  }

  // Show the devices, if it is time to; return how many are in each state.
  show(devices, now, connected, chosen) {
    if (performance.now() - this.drawnAt < DRAW_MS) return this.counts;
    this.drawnAt = performance.now();
    const wanted = this.search.value.trim().toLowerCase();
    const style = getComputedStyle(document.documentElement);
    const colours = ["--accent", "--soft"].map((each) => style.getPropertyValue(each));
    this.list.dataset.size = devices.size <= MAX_ROWS ? "rows" : devices.size <= MAX_PAIRS ? "pairs" : "many";
    const counts = new Map(STATES.map((state) => [state, 0]));
    let added = false;
    let shown = 0;
    for (const device of devices.values()) {
      const state = device.state(now, connected);
      counts.set(state, counts.get(state) + 1);
      let card = this.cards.get(device.name);
      if (!card) {
        card = new Card(device.name, this.choose);
        this.cards.set(device.name, card);
        this.seen.observe(card.root);
        added = true;
      }
      card.rank = STATES.indexOf(state);
      const hidden = (this.only !== null && this.only !== state) || !device.name.toLowerCase().includes(wanted);
      if (card.root.hidden !== hidden) card.root.hidden = hidden;
      if (hidden) continue;
      shown++;
      card.mark(state, device.name === chosen);
      if (card.isSeen) card.write(device, now, connected);
    }
    // After all texts: to measure a canvas, a browser computes the layout of the whole page.
    for (const [name, card] of this.cards) {
      if (card.isSeen && devices.has(name)) card.drawLines(devices.get(name), colours);
    }
    for (const [name, card] of this.cards) {
      if (!devices.has(name)) {
        this.seen.unobserve(card.root);
        card.root.remove();
        this.cards.delete(name);
      }
    }
    if (added || performance.now() - this.pointedAt > POINTER_REST_MS) this.sort();
    for (const [state, button] of this.buttons) {
      setText(button, `${state} ${counts.get(state)}`);
      button.setAttribute("aria-pressed", String(this.only === state));
    }
    const none = document.getElementById("none");
    none.hidden = shown > 0 || !connected;
    setText(none, devices.size ? "No device matches." : "This server has no devices, or none that you may see.");
    this.counts = counts;
    return counts;
  }

  // Put the cards in order: by state, then by name. Cards in the right place are not moved.
  sort() {
    const focused = document.activeElement;
    const cards = [...this.cards.values()].sort((one, other) => one.rank - other.rank || byName(one.name, other.name));
    let next = this.list.firstElementChild;
    for (const { root } of cards) {
      if (root === next) next = next.nextElementSibling;
      else this.list.insertBefore(root, next);
    }
    // A browser takes the focus from an element that is moved.
    if (document.activeElement !== focused && this.list.contains(focused)) focused.focus({ preventScroll: true });
  }

  // Scroll the list so that a device's card can be seen.
  reveal(name) {
    this.cards.get(name)?.root.scrollIntoView({ block: "nearest" });
  }
}

class Card {
  constructor(name, choose) {
    this.name = name;
    this.rank = 0;
    this.isSeen = false;
    this.root = document.createElement("li");
    this.root.dataset.name = name;
    this.button = document.createElement("button");
    this.button.type = "button";
    this.button.className = "card";
    this.button.addEventListener("click", () => choose(name));
    const part = (kind, tag = "span", parent = this.button) => {
      const element = document.createElement(tag);
      element.className = kind;
      parent.append(element);
      return element;
    };
    const top = part("top");
    part("name", "span", top).textContent = name;
    this.state = part("said", "span", top);
    this.values = part("values");
    this.values.append(...Array.from({ length: CARD_VALUES }, valueOf));
    this.text = part("text");
    this.badges = part("badges");
    this.sparkline = new Sparkline(part("spark", "canvas"));
    this.sparklines = [...this.values.children].map((element) => new Sparkline(element.lastChild));
    this.root.append(this.button);
  }

  mark(state, isChosen) {
    if (this.button.dataset.state !== state) this.button.dataset.state = state;
    if (this.button.getAttribute("aria-current") !== String(isChosen)) {
      this.button.setAttribute("aria-current", String(isChosen));
    }
  }

  write(device, now, connected) {
    setText(this.state, device.describeShort(now, connected));
    const names = device.names();
    // A reason for trouble, or a line without numbers, takes the place of the values.
    const text = device.trouble || (names.length ? "" : device.line || "");
    this.text.hidden = !text;
    this.values.hidden = Boolean(text) || !names.length;
    setText(this.text, text);
    for (const [index, element] of [...this.values.children].entries()) {
      const name = names[index];
      element.hidden = name === undefined;
      if (element.hidden) continue;
      setText(element.firstChild, name);
      setText(element.children[1], device.current(name) || "–");
    }
    setText(this.badges, badges(device));
  }

  drawLines(device, colours) {
    const names = device.names();
    this.sparkline.draw(device, names[0], colours);
    for (const [index, line] of this.sparklines.entries()) line.draw(device, names[index], colours);
  }
}

// A column's newest points as a line without axes, and by how much it goes up and down.
class Sparkline {
  constructor(canvas) {
    this.canvas = canvas;
    this.canvas.setAttribute("aria-hidden", "true");
    this.drawn = null;
  }

  draw(device, name, [colour, soft]) {
    const values = name === undefined ? [] : device.history.recent(name, SPARK_POINTS);
    if (this.canvas.hidden !== values.length < 2) this.canvas.hidden = values.length < 2;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const scale = devicePixelRatio || 1;
    const drawn = `${device.newest} ${name} ${width} ${height} ${scale} ${colour}`;
    if (this.canvas.hidden || !width || drawn === this.drawn) return;
    this.drawn = drawn;
    if (this.canvas.width !== Math.round(width * scale)) this.canvas.width = Math.round(width * scale);
    if (this.canvas.height !== Math.round(height * scale)) this.canvas.height = Math.round(height * scale);
    const { min, max } = axisFor(values); // as the charts: noise is not made large
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    // How high the line is: each has a scale of its own.
    const half = (Math.max(...values) - Math.min(...values)) / 2;
    const text = half > 0 ? `±${Number(half.toPrecision(2))}` : "";
    pen.font = FONT;
    pen.fillStyle = soft;
    pen.textBaseline = "middle";
    pen.fillText(text, 0, height / 2);
    const left = text ? Math.ceil(pen.measureText(text).width) + 6 : 2;
    pen.strokeStyle = colour;
    pen.lineWidth = 1.5;
    pen.lineJoin = "round";
    pen.beginPath();
    values.forEach((value, index) => {
      const x = (index / (values.length - 1)) * (width - left - 2) + left;
      const y = height - 3 - ((value - min) / (max - min)) * (height - 6);
      if (index) pen.lineTo(x, y);
      else pen.moveTo(x, y);
    });
    pen.stroke();
  }
}

// The element of one value: the column's name, the number, and room for a line.
function valueOf() {
  const element = document.createElement("span");
  element.append(...["small", "b", "canvas"].map((tag) => document.createElement(tag)));
  return element;
}

function badges(device) {
  const parts = [];
  if (device.crashes) parts.push(`crashed ${device.crashes.count}×: ${device.crashes.error}`);
  if (device.rate) parts.push(`${device.rate} rows/s`);
  if (device.holder) parts.push(`held by ${device.holder}`);
  if (device.recording) parts.push(device.recording);
  if (device.lost) parts.push(`${device.lost} dropped`);
  return parts.join(" · ");
}
