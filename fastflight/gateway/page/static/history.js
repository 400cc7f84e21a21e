// The points of a device that the page keeps: times and a value for each column, in arrays of numbers, the newest last.

import { Summary } from "./summary.js";

// The page keeps the last hour, but no more points than these: an hour at a hundred rows a second of a device that was
// opened, and an hour at one row a second of all others.
export const KEPT_MS = 3_600_000;
export const OPENED_POINTS = 360_000;
export const OTHER_POINTS = 3_600;
const FIRST_ROOM = 512;

export class History {
  constructor(limit = OTHER_POINTS, keptMs = KEPT_MS) {
    this.limit = limit;
    this.keptMs = keptMs;
    this.room = FIRST_ROOM;
    this.times = new Float64Array(this.room);
    // 1: something is missing before this point.
    this.broken = new Uint8Array(this.room);
    // By the column's name; NaN where a point has no value.
    this.columns = new Map();
    this.summaries = new Map();
    this.start = 0;
    this.end = 0;
    this.isBroken = false;
  }

  get size() {
    return this.end - this.start;
  }

  get oldest() {
    return this.size ? this.times[this.start] : null;
  }

  get newest() {
    return this.size ? this.times[this.end - 1] : null;
  }

  // Add points of the feed: a time, then a value or null for each of `names`. A point of a time alone says that something
  // is missing before the next one.
  add(points, names) {
    this.reserve(points.length);
    const named = names.map((name) => this.column(name));
    for (const point of points) {
      if (point.length === 1) {
        this.isBroken = true;
        continue;
      }
      // The clock of the server was set back: the times must grow.
      while (this.size && this.times[this.end - 1] > point[0]) {
        this.end--;
        this.summaries.clear();
      }
      const at = this.end++;
      this.times[at] = point[0];
      this.broken[at] = Number(this.isBroken);
      this.isBroken = false;
      for (const values of this.columns.values()) values[at] = NaN;
      for (let place = 0; place < named.length; place++) named[place][at] = point[place + 1] ?? NaN;
    }
    this.start = Math.max(this.start, this.end - this.limit);
    if (this.size) this.start = this.indexOf(this.newest - this.keptMs);
  }

  // Add points of which some may be known already: those that came again with a new connection.
  rejoin(points, names) {
    const newest = this.newest ?? -Infinity;
    if (this.size && points.length && points[0][0] > newest) this.isBroken = true;
    this.add(points.filter((point) => point[0] > newest), names);
  }

  column(name) {
    if (!this.columns.has(name)) this.columns.set(name, new Float64Array(this.room).fill(NaN));
    return this.columns.get(name);
  }

  // Make room for so many more points.
  reserve(more) {
    if (this.end + more <= this.room) return;
    const isFull = this.size + more > this.room / 2;
    if (isFull) this.room = 2 * (this.size + more);
    const moved = (old, made) => {
      made.set(old.subarray(this.start, this.end));
      return made;
    };
    this.times = moved(this.times, new Float64Array(this.room));
    this.broken = moved(this.broken, new Uint8Array(this.room));
    for (const [name, values] of this.columns) this.columns.set(name, moved(values, new Float64Array(this.room).fill(NaN)));
    [this.start, this.end] = [0, this.size];
    this.summaries.clear();
  }

  // What is known of the blocks of a column.
  summary(name) {
    if (!this.summaries.has(name)) this.summaries.set(name, new Summary(this, name));
    return this.summaries.get(name).update();
  }

  // The place of the first point that is not before `time`.
  indexOf(time) {
    let [low, high] = [this.start, this.end];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The newest values of a column, at most `count`, without those that are missing.
  recent(name, count) {
    const values = this.columns.get(name);
    if (!values) return [];
    return Array.from(values.subarray(Math.max(this.start, this.end - count), this.end)).filter((value) => !Number.isNaN(value));
  }

  // The point of a column that is nearest to a time, as [time, value]; null if it has none.
  nearest(name, time) {
    const values = this.columns.get(name);
    if (!values) return null;
    let [after, before] = [this.indexOf(time), this.indexOf(time) - 1];
    while (after < this.end && Number.isNaN(values[after])) after++;
    while (before >= this.start && Number.isNaN(values[before])) before--;
    if (after >= this.end && before < this.start) return null;
    const isAfter = before < this.start || (after < this.end && this.times[after] - time < time - this.times[before]);
    const at = isAfter ? after : before;
    return [this.times[at], values[at]];
  }
}
