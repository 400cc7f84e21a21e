// The menu of a chart: which columns of which boards it shows, over time or against another column; and saving it.

import { download, fileName, saveRows } from "./saving.js";

const get = (id) => document.getElementById(id);
const isSame = (one, other) => one.device === other?.device && one.column === other?.column;

export class ChartMenu {
  // `devices` are all devices by name.
  constructor(charts, devices) {
    this.charts = charts;
    this.devices = devices;
    this.place = 0;
    get("chart-close").addEventListener("click", () => get("chart-menu").close());
    get("chart-device").addEventListener("change", () => this.fill());
    get("chart-against").addEventListener("change", (event) => {
      const { series } = this.content;
      const chosen = event.target.value === "" ? null : JSON.parse(event.target.value);
      this.apply({ series, ...(chosen && { against: chosen }) });
    });
    for (const format of ["png", "csv", "parquet"]) get(`chart-${format}`).addEventListener("click", () => this.save(format));
    get("chart-add").addEventListener("click", () => {
      const layout = this.layout;
      layout.splice(this.place + 1, 0, structuredClone(this.content));
      this.charts.choose(layout);
      get("chart-menu").close();
    });
    get("chart-remove").addEventListener("click", () => {
      this.charts.choose(this.layout.filter((_, place) => place !== this.place));
      get("chart-menu").close();
    });
    get("chart-reset").addEventListener("click", () => {
      this.charts.choose(null);
      get("chart-menu").close();
    });
  }

  get layout() {
    return structuredClone(this.charts.current(this.charts.device));
  }

  get content() {
    return this.layout[this.place];
  }

  open(chart) {
    this.place = this.charts.charts.indexOf(chart);
    const boards = [...this.devices.values()].filter((device) => device.names().length).map(({ name }) => new Option(name, name));
    get("chart-device").replaceChildren(...boards);
    get("chart-device").value = this.content.series[0].device;
    get("chart-said").textContent = "";
    get("chart-remove").disabled = this.layout.length < 2;
    get("chart-reset").hidden = this.charts.layout === null;
    this.fill();
    get("chart-menu").showModal();
  }

  // Show the columns of the board that is chosen.
  fill() {
    const device = get("chart-device").value;
    const { series, against } = this.content;
    const columns = (this.devices.get(device)?.names() ?? []).map((column) => ({ device, column }));
    get("chart-columns").replaceChildren(
      ...columns.map((each) => {
        const label = document.createElement("label");
        const box = label.appendChild(document.createElement("input"));
        box.type = "checkbox";
        box.checked = series.some((other) => isSame(each, other));
        box.addEventListener("change", () => this.toggle(each, box));
        label.append(each.column);
        return label;
      }),
    );
    const axes = against && !columns.some((each) => isSame(each, against)) ? [against, ...columns] : columns;
    const option = (each) => new Option(each.device === device ? each.column : `${each.device} ${each.column}`, JSON.stringify(each));
    get("chart-against").replaceChildren(new Option("time", ""), ...axes.map(option));
    get("chart-against").value = against ? JSON.stringify({ device: against.device, column: against.column }) : "";
  }

  toggle(each, box) {
    const content = this.content;
    const others = content.series.filter((other) => !isSame(each, other));
    const series = box.checked ? [...others, each] : others;
    if (series.length) this.apply({ ...content, series });
    else box.checked = true; // a chart of nothing can be removed
  }

  apply(content) {
    const layout = this.layout;
    layout[this.place] = content;
    this.charts.choose(layout);
  }

  async save(format) {
    const chart = this.charts.charts[this.place];
    get("chart-said").textContent = "Saving…";
    try {
      let said = "";
      if (format === "png") download(await chart.plot.picture(chart.title), `${fileName(chart)}.png`);
      else said = await saveRows(chart, this.charts.view.range, format);
      get("chart-said").textContent = said || "Saved.";
    } catch (error) {
      get("chart-said").textContent = `Not saved: ${error.message}`;
    }
  }
}
