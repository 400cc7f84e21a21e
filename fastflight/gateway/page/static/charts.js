// A chart for each numeric column of the chosen device, one below the other over the same time.

import { echarts } from "/page/echarts/index.js";

import { order } from "./devices.js";

const CHART_HEIGHT = 92;
const GAP = 44;
const COLOURS = ["#2f6fed", "#d9822b", "#17a06a", "#b04ad0", "#d1495b", "#2a9fb5"];

export class Charts {
  constructor(element) {
    this.element = element;
    this.chart = null;
    this.names = "";
    new ResizeObserver(() => this.chart?.resize()).observe(element);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => this.forget());
  }

  // Begin anew with the next `show`.
  forget() {
    this.chart?.dispose();
    this.chart = null;
    this.names = "";
  }

  show(device) {
    const { points } = device;
    const places = order(device.columns);
    const columns = places.map((place) => device.columns[place]);
    document.getElementById("no-numbers").hidden = columns.length > 0;
    if (!columns.length) {
      this.element.style.height = "0";
      this.forget();
      return;
    }
    const names = JSON.stringify([device.name, columns]);
    if (names !== this.names) {
      this.forget();
      this.element.style.height = `${columns.length * (CHART_HEIGHT + GAP) + 20}px`;
      this.chart = echarts.init(this.element, null, { renderer: "canvas" });
      this.chart.setOption(this.frame(columns));
      this.names = names;
    }
    this.chart.setOption({
      series: places.map((place) => ({ data: points.map((point) => [point[0], point[place + 1] ?? null]) })),
    });
  }

  frame(columns) {
    const style = getComputedStyle(document.documentElement);
    const [text, soft, rule] = ["--text", "--soft", "--rule"].map((name) => style.getPropertyValue(name));
    const top = (place) => place * (CHART_HEIGHT + GAP) + 28;
    const last = columns.length - 1;
    return {
      animation: false,
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
      // As text on the canvas: column names are the device's.
      tooltip: { trigger: "axis", renderMode: "richText", axisPointer: { type: "line" } },
      axisPointer: { link: [{ xAxisIndex: "all" }] },
      title: columns.map((name, place) => ({
        text: name,
        left: -5,
        top: top(place) - 30,
        textStyle: { fontSize: 13, fontWeight: 600, color: text },
      })),
      grid: columns.map((_, place) => ({ left: 52, right: 14, top: top(place), height: CHART_HEIGHT })),
      xAxis: columns.map((_, place) => ({
        type: "time",
        gridIndex: place,
        axisLabel: { show: place === last, color: soft, hideOverlap: true, formatter: "{HH}:{mm}:{ss}" },
        axisLine: { lineStyle: { color: rule } },
        axisTick: { show: place === last },
        splitLine: { show: false },
      })),
      yAxis: columns.map((_, place) => ({
        type: "value",
        scale: true,
        gridIndex: place,
        splitNumber: 2,
        axisLabel: { color: soft, formatter: short },
        splitLine: { lineStyle: { color: rule } },
      })),
      series: columns.map((name, place) => ({
        name,
        type: "line",
        xAxisIndex: place,
        yAxisIndex: place,
        showSymbol: false,
        connectNulls: true,
        lineStyle: { width: 1.8 },
        color: COLOURS[place % COLOURS.length],
        data: [],
      })),
    };
  }
}

// Six characters at most, so that the axes of all charts stand below each other.
function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return value.toExponential(1);
  return size >= 10000 ? `${Math.round(value / 100) / 10}k` : String(Number(value.toPrecision(5)));
}
