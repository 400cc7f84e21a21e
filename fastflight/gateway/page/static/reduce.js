// Reduces a column over time to what so many pixels can show: the lowest and the highest value of each bucket, so that
// spikes stay.

import { BLOCK } from "./summary.js";

// A pause is a gap if it is longer than this many usual intervals, and than the device is ever late.
const GAP_INTERVALS = 3;
// How many intervals decide what is usual, and the part of them that are no longer than that.
const SAMPLES = 100;
const USUAL_PART = 0.8;

// The buckets of a column: the time of its first value, the lowest and the highest one, and whether there is a gap before.
export class Buckets {
  constructor() {
    this.times = [];
    this.lows = [];
    this.highs = [];
    this.broken = [];
    // Of the values within the range that was asked for.
    this.low = Infinity;
    this.high = -Infinity;
  }

  get count() {
    return this.times.length;
  }

  push(time, low, high, broken) {
    this.times.push(time);
    this.lows.push(low);
    this.highs.push(high);
    this.broken.push(broken);
  }

  // Put a value into the last bucket, or into a new one.
  extend(isSame, time, low, high, broken) {
    const end = this.times.length - 1;
    if (!isSame) {
      this.push(time, low, high, broken);
    } else {
      if (low < this.lows[end]) this.lows[end] = low;
      if (high > this.highs[end]) this.highs[end] = high;
    }
  }

  pop() {
    for (const each of [this.times, this.lows, this.highs, this.broken]) each.pop();
  }

  include(low, high) {
    if (low < this.low) this.low = low;
    if (high > this.high) this.high = high;
  }

  // These buckets, and then those of `later`. `broken`: something is missing between them.
  concat(later, broken) {
    const made = new Buckets();
    for (const key of ["times", "lows", "highs", "broken"]) made[key] = this[key].concat(later[key]);
    if (broken && later.count) made.broken[this.count] = true;
    [made.low, made.high] = [Math.min(this.low, later.low), Math.max(this.high, later.high)];
    return made;
  }

  // The buckets between two times, and one on each side.
  between(from, to) {
    const made = new Buckets();
    for (let place = 0; place < this.count; place++) {
      if ((this.times[place + 1] ?? Infinity) < from || (this.times[place - 1] ?? -Infinity) > to) continue;
      made.push(this.times[place], this.lows[place], this.highs[place], this.broken[place]);
      if (this.times[place] >= from && this.times[place] <= to) made.include(this.lows[place], this.highs[place]);
    }
    return made;
  }

  // The place of the bucket that is nearest to a time.
  nearest(time) {
    let best = 0;
    for (let place = 1; place < this.count; place++) {
      if (Math.abs(this.times[place] - time) < Math.abs(this.times[best] - time)) best = place;
    }
    return best;
  }
}

// Reduce the column `name` between two times to at most about twice `pixels` buckets. `late`: see `Device.late`, in ms.
// The points before and after the range are there, too: lines go to the edges of a chart.
export function reduce(history, name, from, to, pixels, late = 0) {
  const made = new Buckets();
  const values = history.columns.get(name);
  if (!values) return made;
  const { times, broken } = history;
  let [first, last] = [history.indexOf(from) - 1, history.indexOf(to)];
  while (first > history.start && Number.isNaN(values[first])) first--;
  while (last < history.end - 1 && Number.isNaN(values[last])) last++;
  [first, last] = [Math.max(first, history.start), Math.min(last, history.end - 1)];
  // Buckets begin at multiples of their width, so that they stay the same while a chart moves.
  const width = last - first > 2 * pixels ? (to - from) / pixels : 0;
  const longest = gapAfter(late, sampled(times, values, first, last));
  const blocks = (last - first) / pixels > 2 * BLOCK ? history.summary(name) : null;
  let [bucket, isMissing, before] = [NaN, false, NaN];
  for (let at = first; at <= last; at++) {
    // A whole block at once: it is less than half a bucket, and has no gap.
    const block = at / BLOCK;
    if (blocks && at % BLOCK === 0 && at + BLOCK <= Math.min(last, blocks.end) && blocks.pauses[block] <= longest && !isMissing) {
      const current = Math.floor(times[at] / width);
      made.extend(current === bucket, times[at], blocks.lows[block], blocks.highs[block], false);
      if (times[at] >= from && times[at + BLOCK - 1] <= to) made.include(blocks.lows[block], blocks.highs[block]);
      [bucket, before] = [current, blocks.lasts[block]];
      at += BLOCK - 1;
      continue;
    }
    const [time, value] = [times[at], values[at]];
    if (broken[at]) isMissing = true;
    if (value !== value) continue; // NaN
    const isGap = isMissing || time - before > longest;
    const current = width ? Math.floor(time / width) : at;
    made.extend(current === bucket && !isGap, time, value, value, isGap);
    if (time >= from && time <= to) made.include(value, value);
    [bucket, isMissing, before] = [current, false, time];
  }
  return made;
}

// The length from which a pause is a gap, from pauses as they usually are: most of them are no longer.
export function gapAfter(late, pauses) {
  pauses.sort((one, other) => one - other);
  const part = pauses.length < 10 ? 0.5 : USUAL_PART;
  return Math.max(late, GAP_INTERVALS * (pauses[Math.min(pauses.length - 1, Math.floor(pauses.length * part))] ?? 0));
}

// Some of the pauses between the values of a column.
function sampled(times, values, first, last) {
  const intervals = [];
  const stride = Math.max(1, Math.floor((last - first) / SAMPLES));
  for (let begin = first; begin < last; begin += stride) {
    let at = begin;
    while (at <= last && values[at] !== values[at]) at++;
    let next = at + 1;
    while (next <= last && values[next] !== values[next]) next++;
    if (next <= last) intervals.push(times[next] - times[at]);
  }
  return intervals;
}
