// Times on axes and in sentences, in the time zone of the browser.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30].map((count) => count * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((count) => count * MINUTE),
  ...[1, 2, 3, 6, 12].map((count) => count * HOUR),
  ...[1, 2, 7, 14, 30, 90, 365].map((count) => count * DAY),
];

// The labelled times of an axis: at most `most`, at round times.
export function timeTicks(from, to, most) {
  const step = STEPS.find((each) => (to - from) / each <= most) ?? Math.ceil((to - from) / most / (365 * DAY)) * 365 * DAY;
  const zone = new Date(from).getTimezoneOffset() * MINUTE;
  const ticks = [];
  for (let time = Math.ceil((from - zone) / step) * step + zone; time <= to; time += step) {
    ticks.push({ time, text: clock(time, step) });
  }
  return ticks;
}

// A time, as exact as steps of `step` ms need it.
export function clock(time, step) {
  const date = new Date(time);
  const two = (number) => String(number).padStart(2, "0");
  if (step >= 300 * DAY) return String(date.getFullYear());
  const isMidnight = step >= MINUTE && date.getHours() === 0 && date.getMinutes() === 0;
  if (step >= DAY || isMidnight) return `${date.getDate()} ${MONTHS[date.getMonth()]}`;
  const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (step >= MINUTE) return minutes;
  const seconds = `${minutes}:${two(date.getSeconds())}`;
  return step >= SECOND ? seconds : `${seconds}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

// A time in words, with its day unless it is today.
export function describeTime(time) {
  const isToday = new Date(time).toDateString() === new Date().toDateString();
  const day = isToday ? "" : `${clock(time, DAY)} ${new Date(time).getFullYear()} `;
  return `${day}${clock(time, SECOND)}`;
}

// A range of times in words. The day is said unless it is today.
export function describeRange(from, to) {
  const step = to - from < 20 * SECOND ? 1 : SECOND;
  const [first, last, today] = [from, to, Date.now()].map((time) => new Date(time).toDateString());
  const day = (time, shown) => (shown ? `${clock(time, DAY)} ` : "");
  return `${day(from, first !== today)}${clock(from, step)} to ${day(to, last !== first)}${clock(to, step)}`;
}

// A length of time in words.
export function describeSpan(ms) {
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < 2 * MINUTE) return `${Number((ms / SECOND).toPrecision(2))} s`;
  if (ms < 2 * HOUR) return `${Math.round(ms / MINUTE)} min`;
  return ms < 2 * DAY ? `${Math.round(ms / HOUR)} h` : `${Math.round(ms / DAY)} days`;
}
