// The numeric columns of a device's output: which of them are charted, their units, and how their numbers are written.

// Columns that hold a time or count lines. They always grow, so a chart of them says nothing.
const CLOCK =
  /^(ms|us|ns|ts|seq|seqno|sequence|millis|micros|(ticks|time|timestamp|uptime|epoch|datetime|elapsed)(_?(s|ms|us|ns|sec|seconds|utc|unix))?)$/i;
// Names that may mean a time or a count, but also a temperature or a number of people: their values decide.
const MAYBE_CLOCK = /^(t|s|n|i|id|idx|index|row|line|sample|count|counter)$/i;
// A device that restarts begins to count anew, so a clock may fall once.
const MAX_FALLS = 1;

// What the last part of a column's name says about its unit, as in `temperature_c` or `battery_v`.
const UNITS = {
  c: "°C", degc: "°C", celsius: "°C", f: "°F", degf: "°F", k: "K",
  v: "V", mv: "mV", uv: "µV", a: "A", ma: "mA", ua: "µA", w: "W", mw: "mW", kw: "kW", wh: "Wh", kwh: "kWh", mah: "mAh",
  ohm: "Ω", kohm: "kΩ", pct: "%", percent: "%", rh: "%", ppm: "ppm", ppb: "ppb",
  pa: "Pa", hpa: "hPa", kpa: "kPa", mbar: "mbar", bar: "bar", lux: "lx", lx: "lx",
  mm: "mm", cm: "cm", m: "m", km: "km", g: "g", kg: "kg", l: "l", ml: "ml",
  s: "s", ms: "ms", us: "µs", min: "min", h: "h", hz: "Hz", khz: "kHz", mhz: "MHz", rpm: "rpm",
  db: "dB", dbm: "dBm", deg: "°", dps: "°/s", mps: "m/s", kmh: "km/h", mg: "mg", ug: "µg", bytes: "B", kb: "kB",
};

// Digits that are kept of a number. A board with 32-bit floats prints 21.4 as 21.39999961853027.
const SIGNIFICANT = 6;
// The smallest height of a chart, as a part of the value and in steps of its last digit: less is noise.
export const MIN_SPAN_PART = 0.01;
const MIN_SPAN_STEPS = 5;
// About how many parts the axis is divided into.
const AXIS_PARTS = 4;

// Whether a column holds a time or counts. `values` are its newest values, with null where a line had none.
export function isClock(name, values) {
  if (CLOCK.test(name)) return true;
  if (!MAYBE_CLOCK.test(name)) return false;
  const numbers = values.filter((value) => value != null);
  let falls = 0;
  for (let place = 1; place < numbers.length; place++) if (numbers[place] <= numbers[place - 1]) falls++;
  return falls <= MAX_FALLS && falls < Math.max(1, numbers.length - 1);
}

// The unit that a column's name ends with, or "".
export function unitOf(name) {
  const end = /._([a-z]+)$/i.exec(name)?.[1].toLowerCase();
  return Object.hasOwn(UNITS, end ?? "") ? UNITS[end] : "";
}

// How many digits after the point the values have.
export function decimalsOf(values) {
  let most = 0;
  for (const value of values) {
    if (value == null) continue;
    const [, fraction = "", exponent = "0"] = /^-?\d+(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(Number(value.toPrecision(SIGNIFICANT)));
    most = Math.max(most, fraction.length - Number(exponent));
  }
  return most;
}

// A number as text, with `decimals` digits after the point, where that is not too long.
export function written(value, decimals) {
  const size = Math.abs(value);
  if (size >= 1e7 || (size > 0 && size < 1e-4)) return value.toExponential(2);
  return value.toFixed(Math.min(decimals, 6));
}

// The y axis for values that have so many `digits`: `min`, `max`, `step` and the `decimals` of its labels. The values lie
// within it.
export function axisFor(values, digits = decimalsOf(values)) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value == null) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) [low, high] = [0, 0];
  const middle = low / 2 + high / 2;
  const span = Math.max(
    high - low,
    Math.max(Math.abs(low), Math.abs(high)) * MIN_SPAN_PART,
    MIN_SPAN_STEPS * 10 ** -digits,
  );
  // Values that are never negative have no axis below zero.
  const start = low >= 0 ? Math.max(0, middle - span / 2) : middle - span / 2;
  const step = roundStep(span / AXIS_PARTS);
  return {
    min: tidy(Math.floor(tidy(start / step)) * step),
    max: tidy(Math.ceil(tidy((start + span) / step)) * step),
    step,
    decimals: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)),
  };
}

// The next of 1, 2, 5, 10, 20, 50, ... that is not less than `size`.
function roundStep(size) {
  const power = 10 ** Math.floor(Math.log10(size));
  return tidy([1, 2, 5, 10].find((factor) => factor * power >= size * (1 - 1e-9)) * power);
}

// Without the last bits, in which 0.1 + 0.2 is not 0.3.
function tidy(number) {
  return Number(number.toPrecision(12));
}
