// Draws a chart on a canvas: panels of lines below each other with one time axis, or one column against another.

import { MIN_SPAN_PART, axisFor, written } from "./columns.js";
import { clock, timeTicks } from "./ticks.js";

// Room for the labels of the axes, in CSS pixels.
const [LEFT, RIGHT, TOP, BOTTOM] = [58, 12, 10, 26];
const PANEL_GAP = 14;
const TICK_WIDTH = 84;
const LABEL_HEIGHT = 18;
const DOT = 2.2;
const MAX_ROUND = 500;

// The colours of the page, read again when they change.
let colours = null;
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => (colours = null));
function theme() {
  if (colours === null) {
    const style = getComputedStyle(document.documentElement);
    colours = { font: getComputedStyle(document.body).fontFamily };
    for (const name of ["text", "soft", "rule", "panel", "ground"]) colours[name] = style.getPropertyValue(`--${name}`);
  }
  return colours;
}

export class Plot {
  // `changed()` is called when the chart must be drawn again.
  constructor(parent, changed) {
    this.canvas = parent.appendChild(document.createElement("canvas"));
    this.pen = this.canvas.getContext("2d");
    [this.width, this.height, this.scale] = [0, 0, 1];
    this.sizes = new ResizeObserver(([{ contentRect }]) => {
      [this.width, this.height, this.scale] = [contentRect.width, contentRect.height, devicePixelRatio || 1];
      this.canvas.width = Math.round(this.width * this.scale);
      this.canvas.height = Math.round(this.height * this.scale);
      changed();
    });
    this.sizes.observe(parent);
    dark.addEventListener("change", changed);
    this.close = () => {
      this.sizes.disconnect();
      dark.removeEventListener("change", changed);
    };
  }

  // How many pixels the time axis has.
  get pixels() {
    return Math.max(1, this.width - LEFT - RIGHT);
  }

  // The time at a place of the pointer, in pixels from the left edge.
  timeAt(x, { from, to }) {
    return from + ((x - LEFT) / this.pixels) * (to - from);
  }

  begin() {
    const { pen, width, height, scale } = this;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = `12px ${theme().font}`;
    pen.lineJoin = "round";
    return pen;
  }

  // Draw `panels` over the time `from` to `to`; each has `traces` with `buckets` and a `colour`. `missing` are spans of time
  // that are known to have no data, `cursor` is a time or null.
  draw({ from, to, panels, missing = [], cursor = null }) {
    if (!this.width || !(to > from)) return;
    const pen = this.begin();
    const right = this.width - RIGHT;
    const bottom = this.height - BOTTOM;
    const x = (time) => LEFT + ((time - from) / (to - from)) * (right - LEFT);
    const height = (bottom - TOP - PANEL_GAP * (panels.length - 1)) / panels.length;
    pen.fillStyle = theme().rule;
    pen.globalAlpha = 0.35;
    for (const span of missing) {
      const [begin, end] = [Math.max(LEFT, x(span.from)), Math.min(right, x(span.to))];
      if (end > begin) pen.fillRect(begin, TOP, Math.max(1, end - begin), bottom - TOP);
    }
    pen.globalAlpha = 1;
    for (const [index, { traces }] of panels.entries()) {
      const top = TOP + index * (height + PANEL_GAP);
      const y = this.axis(axisOf(traces), top, top + height, right);
      pen.save();
      pen.beginPath();
      pen.rect(LEFT, top - 2, right - LEFT, height + 4);
      pen.clip();
      for (const { buckets, colour } of traces) drawLine(pen, buckets, x, y, colour);
      pen.restore();
    }
    this.times(from, to, x, bottom, right);
    if (cursor !== null && cursor >= from && cursor <= to) this.cursor(x(cursor), cursor, to - from, bottom, right);
  }

  // Draw the lines and labels of a y axis; return the function from values to pixels.
  axis({ min, max, step, decimals }, top, bottom, right) {
    const { pen } = this;
    const y = (value) => bottom - ((value - min) / (max - min)) * (bottom - top);
    pen.strokeStyle = theme().rule;
    pen.fillStyle = theme().soft;
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const every = Math.ceil(LABEL_HEIGHT / ((step * (bottom - top)) / (max - min)));
    pen.beginPath();
    for (let index = 0; index <= Math.round((max - min) / step); index += every) {
      const value = min + index * step;
      const place = Math.round(y(value)) + 0.5;
      pen.moveTo(LEFT, place);
      pen.lineTo(right, place);
      pen.fillText(label(value, decimals), LEFT - 8, place);
    }
    pen.stroke();
    return y;
  }

  times(from, to, x, bottom, right) {
    const { pen } = this;
    pen.fillStyle = theme().soft;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const { time, text } of timeTicks(from, to, Math.max(1, Math.floor((right - LEFT) / TICK_WIDTH)))) {
      const half = pen.measureText(text).width / 2;
      const place = Math.min(Math.max(x(time), LEFT + half - 20), this.width - half - 2);
      pen.fillRect(x(time), bottom, 1, 4);
      pen.fillText(text, place, bottom + 8);
    }
  }

  cursor(place, time, span, bottom, right) {
    const { pen } = this;
    const { text, panel } = theme();
    pen.fillStyle = text;
    pen.fillRect(Math.round(place), TOP, 1, bottom - TOP);
    const said = clock(time, span < 60_000 ? 1 : 1000);
    const half = pen.measureText(said).width / 2 + 6;
    const middle = Math.min(Math.max(place, LEFT + half), right + RIGHT - half);
    pen.beginPath();
    pen.roundRect(middle - half, bottom + 3, 2 * half, 20, 4);
    pen.fill();
    pen.fillStyle = panel;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    pen.fillText(said, middle, bottom + 8);
  }

  // Draw one column against another: `trails` have a `colour` and `points` of two values, in the order of time, with null
  // at a gap. `cursors` are the points at the time of the cursor, `title` names the axis below.
  drawAgainst({ trails, title, cursors = [] }) {
    if (!this.width) return;
    const pen = this.begin();
    const [right, bottom] = [this.width - RIGHT, this.height - BOTTOM];
    const all = trails.flatMap(({ points }) => points.filter((point) => point !== null));
    const y = this.axis(axisFor(extent(all.map((point) => point[1]))), TOP, bottom, right);
    const { min, max, step, decimals } = axisFor(extent(all.map((point) => point[0])));
    const x = (value) => LEFT + ((value - min) / (max - min)) * (right - LEFT);
    pen.fillStyle = theme().soft;
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (let index = 0; index < Math.round((max - min) / step); index++) {
      const value = min + index * step;
      pen.fillRect(x(value), bottom, 1, 4);
      pen.fillText(label(value, decimals), x(value), bottom + 8);
    }
    pen.textAlign = "right";
    pen.fillText(title, right, bottom + 8);
    for (const { points, colour } of trails) {
      pen.strokeStyle = pen.fillStyle = colour;
      pen.lineWidth = 1.2;
      pen.beginPath();
      let isOpen = false;
      for (const point of points) {
        if (point === null) isOpen = false;
        else if (isOpen) pen.lineTo(x(point[0]), y(point[1]));
        else pen.moveTo(x(point[0]), y(point[1]));
        isOpen = point !== null;
      }
      pen.stroke();
    }
    pen.fillStyle = theme().text;
    for (const [one, other] of cursors) drawDot(pen, x(one), y(other), 2 * DOT);
  }

  // The picture with `title` above it, as PNG. Names come from devices: on a canvas they are text.
  async picture(title) {
    const [{ scale }, copy] = [this, document.createElement("canvas")];
    [copy.width, copy.height] = [this.canvas.width, this.canvas.height + Math.round(28 * scale)];
    const pen = copy.getContext("2d");
    pen.fillStyle = theme().panel;
    pen.fillRect(0, 0, copy.width, copy.height);
    pen.drawImage(this.canvas, 0, Math.round(28 * scale));
    pen.scale(scale, scale);
    pen.font = `bold 13px ${theme().font}`;
    pen.fillStyle = theme().text;
    pen.fillText(title, 12, 19, this.width - 24);
    return new Promise((resolve) => copy.toBlob(resolve, "image/png"));
  }
}

// A value alone between gaps is a dot.
function drawLine(pen, { times, lows, highs, broken, count }, x, y, colour) {
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = 1.6;
  // Round joins of thousands of short lines take long, and nobody sees them.
  pen.lineJoin = count > MAX_ROUND ? "bevel" : "round";
  pen.beginPath();
  const dots = [];
  for (let place = 0; place < count; place++) {
    const across = x(times[place]);
    const begins = place === 0 || broken[place];
    const low = y(lows[place]);
    if (begins) pen.moveTo(across, low);
    else pen.lineTo(across, low);
    if (highs[place] !== lows[place]) pen.lineTo(across, y(highs[place]));
    else if (begins && (place === count - 1 || broken[place + 1])) dots.push([across, low]);
  }
  pen.stroke();
  for (const [across, down] of dots) drawDot(pen, across, down, DOT);
}

function drawDot(pen, x, y, size) {
  pen.beginPath();
  pen.arc(x, y, size, 0, 2 * Math.PI);
  pen.fill();
}

// The axis for all that a panel shows.
function axisOf(traces) {
  const shown = traces.filter(({ buckets }) => buckets.low <= buckets.high);
  const values = shown.flatMap(({ buckets }) => [buckets.low, buckets.high]);
  return axisFor(values, Math.max(0, ...shown.map(({ decimals }) => decimals)));
}

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return low <= high ? [low, high] : [];
}

// A trace is flat in a panel of which it takes less than this part. One that is in a panel already stays longer.
const FLAT_PART = 1 / 5;
const FLAT_PART_TO_LEAVE = 1 / 10;

// Put traces into panels, so that none is flat because another one is much larger: a panel has one unit, and one size.
// `before` are the panels of the last time.
export function panelsOf(traces, before = []) {
  const panels = [];
  for (const trace of traces) {
    const neighbours = before.find((panel) => panel.traces.some(({ key }) => key === trace.key))?.traces ?? [];
    const panel = panels.find(({ traces: others }) => {
      const isOld = neighbours.some(({ key }) => key === others[0].key);
      return others[0].unit === trace.unit && !isFlat([...others, trace], isOld ? FLAT_PART_TO_LEAVE : FLAT_PART);
    });
    if (panel) panel.traces.push(trace);
    else panels.push({ traces: [trace] });
  }
  return panels;
}

function isFlat(traces, part) {
  const ranges = traces.map(({ buckets }) => buckets).filter(({ low, high }) => low <= high);
  const whole = Math.max(...ranges.map(({ high }) => high)) - Math.min(...ranges.map(({ low }) => low));
  return ranges.some(({ low, high }) => {
    const least = Math.max(Math.abs(low), Math.abs(high)) * MIN_SPAN_PART;
    return Math.max(high - low, least) < whole * part;
  });
}

// At most eight characters, for the room beside the axis.
function label(value, decimals) {
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-4)) return value.toExponential(1);
  return size >= 1e5 ? `${Math.round(value / 100) / 10}k` : written(value, decimals);
}
