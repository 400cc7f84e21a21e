// Saves what is shown as a file: a picture, or rows that the server reads by SQL.

import { findTable, quoted, table, within } from "./archive.js";
import { ask } from "./asking.js";

export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// Save the result of a query in one of the formats of `POST /sql`.
export async function saveQuery(query, format, name) {
  const answer = await ask(`/sql?format=${format}`, { method: "POST", body: query });
  download(await answer.blob(), `${name}.${format}`);
}

// Save the rows that a chart shows, as "csv" or "parquet"; return what must be said about them.
export async function saveRows(chart, { from, to }, format) {
  const { series, against } = chart.content;
  const columns = new Map();
  for (const { device, column } of [...series, ...(against ? [against] : [])]) {
    if (!columns.has(device)) columns.set(device, new Set());
    columns.get(device).add(column);
  }
  const name = fileName(chart);
  const queries = [];
  let isRecorded = true;
  for (const [device, names] of columns) {
    const found = await findTable(device).catch(() => "live");
    isRecorded &&= found === "rows";
    const board = columns.size > 1 ? `'${device.replaceAll("'", "''")}' as device, ` : "";
    const columnsOf = [...names].map(quoted).join(", ");
    queries.push(`select ${board}time, ${columnsOf} from ${table(device, found)} where ${within(from, to)}`);
  }
  if (!isRecorded && format === "csv" && columns.size === 1) {
    const [[device, names]] = columns;
    download(new Blob([csvOf(chart.charts.find(device).history, [...names], from, to)], { type: "text/csv" }), `${name}.csv`);
    return "Not recorded: the file has the rows that this page has seen.";
  }
  await saveQuery(`${queries.join(" union all by name ")} order by time`, format, name);
  return isRecorded ? "" : "Not recorded: the file has the rows that the server has in memory.";
}

export function fileName({ title }) {
  return title.replace(/[^\p{L}\p{N}._-]+/gu, "-").slice(0, 80);
}

function csvOf(history, names, from, to) {
  // Text that a spreadsheet could take for a formula is marked as text.
  const cell = (text) => `"${text.replace(/^([=+\-@\t\r])/, "'$1").replaceAll('"', '""')}"`;
  const lines = [["time", ...names].map(cell).join(",")];
  for (let at = history.indexOf(from); at < history.end && history.times[at] <= to; at++) {
    const values = names.map((name) => history.columns.get(name)?.[at] ?? NaN).map((value) => (Number.isNaN(value) ? "" : value));
    lines.push([new Date(history.times[at]).toISOString(), ...values].join(","));
  }
  return `${lines.join("\n")}\n`;
}
