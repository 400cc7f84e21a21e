// The box for SQL: a query, its result as a table, and a chart of each number if the first column is a time.

import { ask } from "./asking.js";
import { Chart } from "./charts.js";
import { decimalsOf, written } from "./columns.js";
import { readRows, tableOf } from "./rows.js";

// Charts show so many rows; more than the page is wide.
const MAX_ROWS = 5000;
const MAX_BYTES = 4 * 1024 * 1024;
const MAX_SHOWN_ROWS = 200;
const MAX_CHARTS = 6;
const TIME = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d|$)/;
const get = (id) => document.getElementById(id);

// The rows of a result as a chart takes them: points of a time and a number for each of `names`, in the order of time.
class Result {
  constructor(time, names, rows) {
    this.names = names;
    this.points = rows
      .filter((row) => row[time] != null)
      .map((row) => [instant(row[time]), ...names.map((name) => row[name])])
      .sort((one, other) => one[0] - other[0]);
    this.newest = this.points.at(-1)?.[0];
    // No gaps: a query has its own times.
    this.late = Infinity;
  }

  values(place) {
    return this.points.map((point) => point[place + 1]);
  }

  current(place) {
    const values = this.values(place);
    const newest = values.findLast((value) => value != null);
    return newest === undefined ? "" : written(newest, decimalsOf(values));
  }
}

// A time without a zone is UTC.
const instant = (text) => Date.parse(/(Z|[+-]\d\d(:?\d\d)?)$/.test(text.slice(10)) ? text : `${text.replace(" ", "T")}Z`);

export class Sql {
  constructor() {
    this.charts = [];
    this.stop = new AbortController();
    this.result = null;
    get("sql-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.run(get("sql-query").value);
    });
    get("sql-query").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) get("sql-form").requestSubmit();
    });
    get("sql-tables").addEventListener("click", () => {
      get("sql-query").value = "show tables";
      get("sql-form").requestSubmit();
    });
    // The colours of the charts are those of the theme.
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  async run(query) {
    if (!query.trim()) return tell("Type a query, such as: show tables", true);
    this.stop.abort();
    const stop = (this.stop = new AbortController());
    tell("Running…");
    try {
      const answer = await ask("/sql?format=jsonl", { method: "POST", body: query, signal: stop.signal });
      const { rows, all } = await readRows(answer, MAX_ROWS, MAX_BYTES);
      const { text } = JSON.parse(answer.headers.get("fastflight-summary") ?? "{}");
      if (!stop.signal.aborted) this.show(rows, all, text);
    } catch (error) {
      if (stop.signal.aborted) return;
      this.show([], true);
      tell(error.message, true);
    }
  }

  show(rows, all, said = "") {
    const [time] = Object.keys(rows[0] ?? {});
    const isTime = rows.length > 1 && rows.every((row) => row[time] == null || TIME.test(row[time]));
    const names = isTime ? numbersOf(rows).slice(0, MAX_CHARTS) : [];
    this.result = names.length ? new Result(time, names, rows) : null;
    this.draw();
    get("sql-rows").replaceChildren(...(rows.length ? [tableOf(rows.slice(0, MAX_SHOWN_ROWS))] : []));
    const count = all ? `${rows.length} ${rows.length === 1 ? "row" : "rows"}` : `the first ${rows.length} rows`;
    const shown = rows.length > MAX_SHOWN_ROWS ? `, of which the table shows ${MAX_SHOWN_ROWS}` : "";
    tell(`${count[0].toUpperCase()}${count.slice(1)}${shown}. ${said}`);
  }

  draw() {
    for (const chart of this.charts) chart.close();
    const names = this.result?.names ?? [];
    get("sql-charts").toggleAttribute("data-many", names.length > 1);
    this.charts = names.map((name, place) => new Chart(get("sql-charts"), name, place, null));
    for (const [place, chart] of this.charts.entries()) chart.show(this.result, place);
  }
}

// The columns that hold numbers and nothing else.
function numbersOf(rows) {
  const names = Object.keys(rows[0]).slice(1);
  return names.filter((name) => {
    const values = rows.map((row) => row[name]).filter((value) => value != null);
    return values.length > 0 && values.every((value) => typeof value === "number");
  });
}

function tell(text, failed = false) {
  get("sql-said").textContent = text;
  get("sql-said").classList.toggle("failed", failed);
}
