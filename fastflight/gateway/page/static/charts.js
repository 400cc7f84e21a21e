// The charts of the chosen device. They share a span of time and a cursor; each shows columns of one or more devices.

import { decimalsOf } from "./columns.js";
import { setText } from "./devices.js";
import { Plot, panelsOf } from "./plot.js";
import { Buckets, reduce } from "./reduce.js";

const COLOURS = ["#2f6fed", "#d9822b", "#17a06a", "#b04ad0", "#d1495b", "#2a9fb5", "#8c7a1f", "#6f7d8c"];
// So many charts are below each other in the full width; more stand beside each other.
const MAX_WIDE = 3;
// Points of a chart of one column against another.
const MAX_AGAINST = 4000;
// Values of a recording that decide how many digits they are shown with.
const DIGIT_BUCKETS = 60;

// A chart's content: `series` of {device, column}, drawn over time, or against the series `against`.
export class Charts {
  // `find(name)` returns a device, `archive` knows what was before the page's memory, `menu(chart)` opens the menu of a
  // chart.
  constructor(element, view, { find, archive = null, menu = null }) {
    this.element = element;
    this.view = view;
    this.find = find;
    this.archive = archive;
    this.menu = menu;
    this.charts = [];
    this.shown = "";
    this.drawn = "";
    this.device = null;
    // What the user has chosen, or null for a chart of each column of the device.
    this.layout = null;
  }

  // Draw again with the next frame, whether or not there is new data.
  dirty() {
    this.drawn = "";
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      if (this.device) this.show(this.device);
    });
  }

  choose(layout) {
    this.layout = layout;
    this.view.tell();
  }

  // No device is shown, and the next one has its own charts.
  leave() {
    for (const chart of this.charts) chart.close();
    Object.assign(this, { charts: [], shown: "", device: null, layout: null });
  }

  // The charts of a device, as they can be chosen.
  current(device) {
    return this.layout ?? device.names().map((column) => ({ series: [{ device: device.name, column }] }));
  }

  show(device) {
    this.device = device;
    const layout = this.current(device);
    const shown = JSON.stringify([device.name, layout]);
    if (shown !== this.shown) {
      for (const chart of this.charts) chart.close();
      this.shown = shown;
      this.drawn = "";
      this.element.toggleAttribute("data-many", layout.length > MAX_WIDE);
      this.charts = layout.map((content, index) => new Chart(this, content, index));
    }
    const devices = [...new Set(layout.flatMap(({ series, against }) => [...series, ...(against ? [against] : [])]).map((each) => each.device))]
      .map((name) => this.find(name))
      .filter(Boolean);
    for (const each of devices) each.keepMore();
    const times = (which) => devices.map((each) => each.history[which]).filter((time) => time !== null);
    const [oldest, newest] = [times("oldest"), times("newest")];
    if (!newest.length) newest.push(...devices.flatMap((each) => each.recorded?.newest ?? []));
    this.view.oldest = oldest.length ? Math.min(...oldest) : null;
    this.view.newest = newest.length ? Math.max(...newest) : null;
    const drawn = JSON.stringify([this.view.range, this.view.isLive ? this.view.newest : null, this.view.cursor]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    for (const chart of this.charts) chart.draw();
  }
}

// One chart, with a legend that has the newest values, or those at the cursor.
export class Chart {
  constructor(charts, content, index) {
    this.charts = charts;
    this.view = charts.view;
    this.content = content;
    this.root = charts.element.appendChild(document.createElement("figure"));
    const legend = this.root.appendChild(document.createElement("figcaption"));
    this.series = content.series.map((each, place) => {
      const element = legend.appendChild(document.createElement("div"));
      const colour = COLOURS[(index + place) % COLOURS.length];
      const name = element.appendChild(document.createElement("span"));
      name.textContent = each.device === charts.device.name ? each.column : `${each.device} ${each.column}`;
      if (content.against) name.textContent += ` against ${content.against.column}`;
      element.style.setProperty("--line", colour);
      return { ...each, colour, title: name.textContent, value: element.appendChild(document.createElement("b")) };
    });
    if (charts.menu) {
      const button = this.root.appendChild(document.createElement("button"));
      button.type = "button";
      button.className = "menu";
      button.textContent = "⋯";
      button.setAttribute("aria-label", `Menu of the chart ${this.title}`);
      button.addEventListener("click", () => charts.menu(this));
    }
    const area = this.root.appendChild(document.createElement("div"));
    area.tabIndex = 0;
    area.setAttribute("role", "img");
    area.setAttribute("aria-label", `Chart of ${this.title}. Arrows move it in time, plus and minus zoom, space pauses.`);
    this.plot = new Plot(area, () => charts.dirty());
    this.panels = [];
    if (!content.against) this.view.control(area, this.plot);
  }

  get title() {
    return this.series.map(({ title }) => title).join(", ");
  }

  close() {
    this.plot.close();
    this.root.remove();
  }

  draw() {
    if (this.content.against) return this.drawAgainst();
    const { range, cursor } = this.view;
    const traces = this.series.map((each) => this.trace(each, range));
    this.panels = panelsOf(traces, this.panels);
    this.root.style.setProperty("--panels", this.panels.length);
    this.plot.draw({ ...range, panels: this.panels, cursor, missing: this.missing() });
    for (const [place, { value }] of this.series.entries()) {
      const text = this.valueOf(this.series[place], traces[place]);
      if (text) setText(value, text);
    }
  }

  trace({ device: name, column, colour }, { from, to }) {
    const device = this.charts.find(name);
    const key = `${name}/${column}`;
    if (!device) return { key, colour, unit: "", decimals: 0, buckets: new Buckets() };
    const { pixels } = this.plot;
    const oldest = device.history.oldest ?? Infinity;
    let buckets = reduce(device.history, column, from, to, pixels, device.late ?? 0);
    if (this.charts.archive && from < oldest) {
      const older = this.charts.archive.older(device, column, from, to, pixels)?.between(from, Math.min(to, oldest));
      if (older?.count) {
        while (older.times.at(-1) >= oldest) older.pop();
        const last = older.times.at(-1);
        const isMissing = this.missing().some((gap) => gap.to > last && gap.from < oldest);
        buckets = older.concat(buckets, isMissing || oldest - last > Math.max(device.late ?? 0, (2 * (to - from)) / pixels));
      }
    }
    const isInMemory = device.history.newest !== null;
    const decimals = isInMemory ? device.decimals(column) : decimalsOf(buckets.highs.slice(-DIGIT_BUCKETS));
    return { key, colour, unit: device.unitOf(column), decimals, buckets };
  }

  // The gaps of the first device that are known.
  missing() {
    const device = this.charts.find(this.series[0].device);
    if (!device || !this.charts.archive) return [];
    const live = (device.gaps ?? []).map(({ from, to }) => ({ from: Date.parse(from), to: Date.parse(to) }));
    return [...live, ...this.charts.archive.of(device).gaps].filter(({ from, to }) => to > from);
  }

  // The newest value; where the user looks at the past, the one at the cursor, or the newest that is shown.
  valueOf({ device: name, column }, { buckets, decimals }) {
    const device = this.charts.find(name);
    if (!device) return "";
    const { isLive, cursor, range } = this.view;
    if (isLive && cursor === null && device.newest !== null) return device.current(column);
    if (!buckets.count) return "–";
    const time = cursor ?? range.to;
    const place = buckets.nearest(time);
    if (cursor === null || buckets.lows[place] === buckets.highs[place]) return device.written(column, buckets.highs[place], decimals);
    return [buckets.lows, buckets.highs].map((each) => device.written(column, each[place], decimals)).join(" – ");
  }

  drawAgainst() {
    const { range, cursor } = this.view;
    const { against } = this.content;
    const cursors = [];
    const trails = this.series.map((each) => {
      const [device, other] = [this.charts.find(each.device), this.charts.find(against.device)];
      if (!device || !other) return { points: [], colour: each.colour };
      const { points, at } = pairs(device, each.column, other, against.column, range, cursor);
      if (at) cursors.push(at);
      const newest = at ?? points.findLast((point) => point !== null);
      setText(each.value, newest ? `${device.written(each.column, newest[1])} at ${other.written(against.column, newest[0])}` : "–");
      return { points, colour: each.colour };
    });
    this.plot.drawAgainst({ trails, title: against.column, cursors });
  }
}

// The points of two columns in a range of time, and the one at `cursor`. Columns of other devices are taken at the nearest
// time.
function pairs(device, column, other, against, { from, to }, cursor) {
  const { history } = device;
  const points = [];
  const values = history.columns.get(column);
  const isSame = device === other;
  const others = other.history.columns.get(against);
  if (!values || !others) return { points, at: null };
  const [first, last] = [history.indexOf(from), history.indexOf(to)];
  const stride = Math.max(1, Math.ceil((last - first) / MAX_AGAINST));
  let at = null;
  for (let place = first; place < last; place += stride) {
    const time = history.times[place];
    const across = isSame ? others[place] : (other.history.nearest(against, time)?.[1] ?? NaN);
    if (history.broken[place]) points.push(null);
    if (Number.isNaN(values[place]) || Number.isNaN(across)) continue;
    points.push([across, values[place]]);
    if (cursor !== null && time <= cursor) at = points.at(-1);
  }
  return { points, at };
}
