// The lowest and highest value of each block of points of a column, so that a chart of an hour need not look at all of them.

export const BLOCK = 64;

export class Summary {
  constructor(history, name) {
    this.history = history;
    this.name = name;
    // The place after the last block that is known.
    this.end = 0;
    this.lows = [];
    this.highs = [];
    // The longest pause before a value of a block, in ms; Infinity where something is missing.
    this.pauses = [];
    // The time of the last value until the end of each block.
    this.lasts = [];
  }

  // Take the points that have come since the last time.
  update() {
    const { times, broken, end } = this.history;
    const values = this.history.columns.get(this.name);
    let before = this.lasts.at(-1) ?? NaN;
    let isMissing = false;
    while (this.end + BLOCK <= end) {
      let [low, high, pause] = [Infinity, -Infinity, 0];
      for (let at = this.end; at < this.end + BLOCK; at++) {
        if (broken[at]) isMissing = true;
        const value = values[at];
        if (value !== value) continue; // NaN
        if (value < low) low = value;
        if (value > high) high = value;
        if (isMissing) pause = Infinity;
        else if (times[at] - before > pause) pause = times[at] - before;
        [isMissing, before] = [false, times[at]];
      }
      // Nothing is known of a block without values, or of the one after it.
      this.lows.push(low);
      this.highs.push(high);
      this.pauses.push(low <= high && !isMissing ? pause : Infinity);
      this.lasts.push(before);
      this.end += BLOCK;
    }
    return this;
  }
}
