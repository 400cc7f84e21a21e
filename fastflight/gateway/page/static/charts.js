// A chart for each numeric column of the chosen device that is neither a time nor a count.

import { echarts } from "/page/echarts/index.js";

import { axisFor, written } from "./columns.js";
import { setText } from "./devices.js";

const COLOURS = ["#2f6fed", "#d9822b", "#17a06a", "#b04ad0", "#d1495b", "#2a9fb5"];
// A pause in a column is a gap if it is longer than this many of its usual intervals, and than the device is ever late.
const GAP_INTERVALS = 3;
// So many charts are below each other in the full width; more stand beside each other.
const MAX_WIDE = 3;

export class Charts {
  constructor(element) {
    this.element = element;
    this.charts = [];
    this.names = "";
    this.drawn = null;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.clear());
  }

  clear() {
    for (const chart of this.charts) chart.close();
    this.charts = [];
    this.names = "";
    this.drawn = null;
  }

  show(device) {
    const places = device.places();
    document.getElementById("no-numbers").hidden = places.length > 0;
    const names = JSON.stringify([device.name, places.map((place) => device.columns[place])]);
    if (names !== this.names) {
      this.clear();
      this.names = names;
      this.element.toggleAttribute("data-many", places.length > MAX_WIDE);
      this.charts = places.map((place, index) => new Chart(this.element, device.columns[place], index));
    }
    if (device.newest === this.drawn) return;
    this.drawn = device.newest;
    for (const [index, place] of places.entries()) this.charts[index].show(device, place);
  }
}

// One chart. `times` formats the labels of its time axis; null: as long as the range needs them.
export class Chart {
  constructor(parent, name, index, times = "{HH}:{mm}:{ss}") {
    this.root = document.createElement("figure");
    const title = this.root.appendChild(document.createElement("figcaption"));
    title.appendChild(document.createElement("span")).textContent = name;
    this.value = title.appendChild(document.createElement("b"));
    this.plot = this.root.appendChild(document.createElement("div"));
    parent.append(this.root);
    this.chart = echarts.init(this.plot, null, { renderer: "canvas" });
    this.chart.setOption(frame(name, COLOURS[index % COLOURS.length], times));
    this.sizes = new ResizeObserver(() => this.chart.resize());
    this.sizes.observe(this.plot);
  }

  close() {
    this.sizes.disconnect();
    this.chart.dispose();
    this.root.remove();
  }

  show(device, place) {
    setText(this.value, device.current(place));
    const { min, max, step, decimals } = axisFor(device.values(place));
    this.chart.setOption({
      xAxis: { min: device.points[0][0], max: device.newest },
      yAxis: { min, max, interval: step, axisLabel: { formatter: (value) => label(value, decimals) } },
      series: { data: withGaps(device.points, place, device.late ?? 0) },
    });
  }
}

// The points of a column as a chart takes them. A null between two points makes a gap; a point alone is drawn as a dot.
// Where something is missing, the server sends a point that has only a time.
export function withGaps(points, place, late) {
  const data = [];
  const afterMissing = new Set();
  let isMissing = false;
  for (const point of points) {
    if (point.length === 1) isMissing = true;
    if (point[place + 1] == null) continue;
    if (isMissing) afterMissing.add(data.length);
    isMissing = false;
    data.push([point[0], point[place + 1]]);
  }
  const intervals = data.slice(1).map((point, index) => point[0] - data[index][0]);
  const usual = [...intervals].sort((one, other) => one - other)[intervals.length >> 1] ?? 0;
  const longest = Math.max(late, GAP_INTERVALS * usual);
  const isGap = intervals.map((interval, index) => interval > longest || afterMissing.has(index + 1));
  return data.flatMap((value, index) => {
    const alone = (index === 0 || isGap[index - 1]) && (index === data.length - 1 || isGap[index]);
    const point = alone ? { value, symbol: "circle" } : { value };
    return isGap[index] ? [point, { value: [value[0] + 1, null] }] : [point];
  });
}

function frame(name, colour, times) {
  const style = getComputedStyle(document.documentElement);
  const [soft, rule] = ["--soft", "--rule"].map((each) => style.getPropertyValue(each));
  return {
    animation: false,
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
    // As text on the canvas: column names come from the device.
    tooltip: { trigger: "axis", renderMode: "richText", axisPointer: { type: "line" } },
    grid: { left: 58, right: 12, top: 10, bottom: 28 },
    xAxis: {
      type: "time",
      minInterval: 1000,
      splitNumber: 4,
      axisLabel: { color: soft, hideOverlap: true, margin: 11, ...(times && { formatter: times }) },
      axisLine: { onZero: false, lineStyle: { color: rule } },
      splitLine: { show: false },
    },
    yAxis: { type: "value", axisLabel: { color: soft }, splitLine: { lineStyle: { color: rule } } },
    series: {
      name,
      type: "line",
      symbol: "none",
      symbolSize: 5,
      showAllSymbol: true,
      lineStyle: { width: 1.8 },
      color: colour,
      data: [],
    },
  };
}

// At most eight characters, for the room beside the axis.
function label(value, decimals) {
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-4)) return value.toExponential(1);
  return size >= 1e5 ? `${Math.round(value / 100) / 10}k` : written(value, decimals);
}
