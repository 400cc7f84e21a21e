// The box for SQL: a query, its result as a table, and a chart of each number if the first column is a time.

import { ask } from "./asking.js";
import { Charts } from "./charts.js";
import { decimalsOf, written } from "./columns.js";
import { History } from "./history.js";
import { readRows, tableOf } from "./rows.js";
import { saveQuery } from "./saving.js";
import { describeTime } from "./ticks.js";
import { TimeView } from "./timeview.js";

// Charts show so many rows; more than the page is wide.
const MAX_ROWS = 5000;
const MAX_BYTES = 4 * 1024 * 1024;
const MAX_SHOWN_ROWS = 200;
const MAX_CHARTS = 6;
const TIME = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d|$)/;
const get = (id) => document.getElementById(id);

// A result as the charts take a device: a history of a time and a number for each of `names`.
class Result {
  constructor(time, names, rows) {
    this.name = "";
    this.history = new History(MAX_ROWS, Infinity);
    const points = rows
      .filter((row) => row[time] != null)
      .map((row) => [instant(row[time]), ...names.map((name) => row[name])])
      .sort((one, other) => one[0] - other[0]);
    this.history.add(points, names);
    this.columns = names;
  }

  keepMore() {}

  names() {
    return this.columns;
  }

  unitOf() {
    return "";
  }

  decimals(name) {
    return decimalsOf(this.history.recent(name, MAX_ROWS));
  }

  written(name, value, decimals = this.decimals(name)) {
    return written(value, decimals);
  }

  // The last row is not the newest data: its time stands beside its value.
  current(name) {
    const last = this.history.nearest(name, Infinity);
    return last ? `${this.written(name, last[1])} at ${describeTime(last[0])}` : "";
  }
}

// A time without a zone is UTC.
const instant = (text) => Date.parse(/(Z|[+-]\d\d(:?\d\d)?)$/.test(text.slice(10)) ? text : `${text.replace(" ", "T")}Z`);

export class Sql {
  constructor() {
    this.view = new TimeView(() => this.charts.dirty(), undefined, true);
    this.charts = new Charts(get("sql-charts"), this.view, { find: () => this.result });
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
    for (const button of get("sql-save").children) button.addEventListener("click", () => this.save(button.value));
  }

  // The server runs the query again: the page has not read all of its rows.
  async save(format) {
    const before = get("sql-said").textContent;
    tell("Downloading…");
    await saveQuery(this.query, format, "query").then(() => tell(before), (error) => tell(error.message, true));
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
      if (stop.signal.aborted) return;
      this.query = query;
      this.show(rows, all, text);
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
    get("sql-save").hidden = !rows.length;
    this.view.reset();
    this.charts.leave();
    if (this.result) this.charts.show(this.result);
    get("sql-charts").toggleAttribute("data-many", names.length > 1);
    get("sql-rows").replaceChildren(...(rows.length ? [tableOf(rows.slice(0, MAX_SHOWN_ROWS))] : []));
    const count = all ? `${rows.length} ${rows.length === 1 ? "row" : "rows"}` : `the first ${rows.length} rows`;
    const shown = rows.length > MAX_SHOWN_ROWS ? `, of which the table shows ${MAX_SHOWN_ROWS}` : "";
    tell(`${count[0].toUpperCase()}${count.slice(1)}${shown}. ${said}`);
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
