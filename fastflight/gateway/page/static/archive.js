// Rows from before the page's memory: the server reduces them to the lowest and highest value of each bucket of time.

import { ask } from "./asking.js";
import { Buckets, gapAfter } from "./reduce.js";
import { readRows } from "./rows.js";

// Tables with the rows of a device: what was recorded, or what the server still has in memory.
const TABLES = ["rows", "live"];
// The table's own columns, and those of the device that have the same names.
const OWN = /^(seq|time)(_2)?$/;
const NUMBER = /INT|DOUBLE|FLOAT|DECIMAL/;
// The user goes on moving: the server is asked when they rest.
const REST_MS = 250;
// A device without a recording may get one.
const AGAIN_MS = 30_000;
const MAX_ROWS = 20_000;
const MAX_BYTES = 8 * 1024 * 1024;
// What is asked for beside the range, as a part of it, so that moving a little needs no new rows.
const BESIDE = 0.5;

// Names in SQL. The catalog stands before a device whose name means something else to the engine.
export const quoted = (name) => `"${name.replaceAll('"', '""')}"`;
export const table = (device, name) => `server.${quoted(device)}.${quoted(name)}`;
export const within = (from, to) => `time >= '${new Date(from).toISOString()}' and time <= '${new Date(to).toISOString()}'`;

export async function query(text, maxRows = MAX_ROWS) {
  const answer = await ask("/sql?format=jsonl", { method: "POST", body: text });
  return (await readRows(answer, maxRows, MAX_BYTES)).rows;
}

export class Archive {
  // `changed()` is called when more is known.
  constructor(changed) {
    this.changed = changed;
    this.known = new Map();
  }

  // What is known of one device.
  of(device) {
    if (!this.known.has(device.name)) {
      this.known.set(device.name, { columns: new Set(), loaded: null, pending: null, why: "", since: Infinity, failedAt: -Infinity, gaps: [], timer: 0 });
    }
    return this.known.get(device.name);
  }

  // Find the columns of a device that prints nothing now, and when it last did.
  async discover(device) {
    const about = this.of(device);
    if (about.isDiscovered) return;
    about.isDiscovered = true;
    try {
      about.table ??= await findTable(device.name);
      const columns = await numbersOf(device.name, about.table);
      const [{ newest }] = await query(`select epoch_ms(max(time)) as newest from ${table(device.name, about.table)}`);
      if (newest !== null) device.recorded = { newest, columns: columns.filter((name) => !OWN.test(name)) };
      this.changed();
    } catch {
      // nothing is known of it
    }
  }

  // The buckets of a column between two times, as far as they are known. The rest is asked for.
  older(device, column, from, to, pixels) {
    const about = this.of(device);
    about.columns.add(column);
    const { loaded } = about;
    const width = Math.max(1, (to - from) / pixels);
    const until = Math.min(to, device.history.oldest ?? Infinity);
    const isKnown =
      loaded && loaded.from <= from && loaded.to >= until && loaded.width <= 1.5 * width && loaded.buckets.has(column);
    if (!isKnown && performance.now() - about.failedAt > AGAIN_MS) this.want(device, about, from, until, width);
    return loaded?.buckets.get(column) ?? null;
  }

  want(device, about, from, to, width) {
    const { pending } = about;
    const isAsked = pending && pending.from <= from && pending.to >= to && pending.width <= 1.5 * width;
    if (isAsked && pending.columns === about.columns.size) return;
    const span = to - from;
    // Some of it is in memory, too: the oldest points there are dropped after an hour.
    const most = device.history.newest ?? Infinity;
    const range = { from: Math.floor(from - BESIDE * span), to: Math.ceil(Math.min(to + BESIDE * span, most)) };
    about.pending = { ...range, width, columns: about.columns.size };
    clearTimeout(about.timer);
    about.timer = setTimeout(() => this.load(device, about, about.pending), REST_MS);
  }

  async load(device, about, asked) {
    const { from, to, width } = asked;
    const wanted = [...about.columns];
    try {
      about.table ??= await findTable(device.name);
      const numbers = await numbersOf(device.name, about.table);
      const names = wanted.filter((name) => numbers.includes(name));
      const parts = names.map((name, place) => `min(${quoted(name)}) as low${place}, max(${quoted(name)}) as high${place}`);
      const rows = await query(
        `select count(*) as n, min(epoch_ms(time)) as first, max(epoch_ms(time)) as last${parts.map((each) => `, ${each}`).join("")} ` +
          `from ${table(device.name, about.table)} where ${within(from, to)} group by epoch_ms(time) // ${Math.ceil(width)} order by first`,
      );
      const gaps = about.table === "rows" ? await gapsOf(device.name, from, to) : [];
      if (asked !== about.pending) return; // the user has moved on, and something else is on its way
      const longest = gapAfter(device.late ?? 0, rows.map(({ n, first, last }) => (last - first) / (n - 1)).filter(Number.isFinite));
      const buckets = new Map(wanted.map((name) => [name, bucketsOf(rows, names.indexOf(name), longest, gaps)]));
      const why = about.table === "rows" ? "" : "it is not recorded";
      Object.assign(about, { loaded: { from, to, width, buckets }, gaps, why, since: rows[0]?.first ?? Infinity });
    } catch (error) {
      Object.assign(about, { why: error.message, failedAt: performance.now(), table: undefined });
    }
    about.pending = null;
    this.changed();
  }
}

// The first table of the device that exists.
export async function findTable(device) {
  for (const name of TABLES) {
    try {
      await query(`describe ${table(device, name)}`);
      return name;
    } catch (error) {
      if (name === TABLES.at(-1)) throw error;
    }
  }
}

// The columns of a table that hold numbers.
async function numbersOf(device, name) {
  const columns = await query(`describe ${table(device, name)}`);
  return columns.filter((each) => NUMBER.test(each.column_type)).map((each) => each.column_name);
}

export async function gapsOf(device, from, to) {
  const rows = await query(
    `select epoch_ms(from_time) as "from", epoch_ms(to_time) as "to", why from ${table(device, "gaps")} ` +
      `where to_time >= '${new Date(from).toISOString()}' and from_time <= '${new Date(to).toISOString()}' order by from_time`,
  );
  return rows.filter((gap) => gap.from !== null && gap.to !== null);
}

function bucketsOf(rows, place, longest, gaps) {
  const made = new Buckets();
  if (place < 0) return made;
  let before = NaN;
  for (const row of rows) {
    const [low, high] = [row[`low${place}`], row[`high${place}`]];
    if (low === null) continue;
    const isMissing = gaps.some((gap) => gap.to > before && gap.from < row.first);
    made.push(row.first, low, high, row.first - before > longest || isMissing);
    made.include(low, high);
    before = row.last;
  }
  return made;
}
