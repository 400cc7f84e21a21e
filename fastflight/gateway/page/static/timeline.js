// The timeline of a device under its charts: tracebacks, resets, errors, gaps and uses, as marks that show their text.

import { query, table, within } from "./archive.js";
import { describeGap, setText } from "./devices.js";
import { describeTime } from "./ticks.js";

// As in `marks.py`, for lines of a recording. The first kind of marks at one place is the one that is shown.
const KINDS = {
  traceback: /^Traceback \(most recent call last\)|^Guru Meditation Error/,
  reset: /^(MPY: soft reboot|MicroPython v\d|CircuitPython \d|rst:0x|ets [A-Z][a-z]{2} |ESP-ROM:|Brownout)/,
  error: /^[^{].*error|^error|:\s*"(error|critical|fatal)"/i,
};
const ORDER = [...Object.keys(KINDS), "gap", "use"];
const ANY = "Traceback|MPY: soft|MicroPython v|CircuitPython|rst:0x|ESP-ROM:|Brownout|error|critical|fatal|Guru";
const MAX_FOUND = 300;
const REST_MS = 400;
// Marks closer than this are one.
const NEAR_PIXELS = 26;
const [BEFORE_MS, AFTER_MS, BEFORE_LINES, TEXT_LINES] = [3000, 3000, 4, 16];
const get = (id) => document.getElementById(id);

export class Timeline {
  constructor(view) {
    this.view = view;
    this.device = null;
    this.shown = "";
    this.width = 0;
    new ResizeObserver(([{ contentRect }]) => (this.width = contentRect.width)).observe(get("marks"));
    this.leave(null);
  }

  leave(device) {
    this.device = device;
    // Marks of the recording, and the range in which they were looked for.
    this.recorded = { from: Infinity, to: -Infinity, marks: [] };
    get("timeline").hidden = get("mark").hidden = true;
  }

  show(device) {
    if (device !== this.device) this.leave(device);
    const { from, to } = this.view.range;
    this.look(from, Math.min(to, device.since ?? to));
    const gaps = (device.gaps ?? []).map((gap) => ({ time: Date.parse(gap.from ?? gap.to), kind: "gap", text: describeGap(gap) }));
    const marks = [...device.marks.values(), ...this.recorded.marks, ...gaps].filter(({ time }) => time >= from && time <= to);
    // Once there is something, its room stays.
    if (marks.length) get("timeline").hidden = false;
    const places = this.places(marks.sort((one, other) => one.time - other.time), from, to);
    const shown = JSON.stringify(places.map(({ left, marks: [{ time }], marks }) => [Math.round(left), time, marks.length]));
    if (shown === this.shown) return;
    this.shown = shown;
    // A button that stays keeps the focus of the keyboard.
    const buttons = get("marks").children;
    while (buttons.length > places.length) buttons[buttons.length - 1].remove();
    for (const [index, { left, marks: together }] of places.entries()) {
      const button = buttons[index] ?? get("marks").appendChild(document.createElement("button"));
      button.type = "button";
      const kind = ORDER.find((each) => together.some((mark) => mark.kind === each));
      button.dataset.kind = kind;
      button.style.left = `${left}px`;
      setText(button, together.length > 1 ? String(together.length) : kind[0].toUpperCase());
      button.title = `${together.length > 1 ? `${together.length} marks, the first: ` : ""}${together[0].kind}, ${describeTime(together[0].time)}`;
      button.setAttribute("aria-label", button.title);
      button.onclick = () => this.open(together);
    }
  }

  // Put marks that are close to each other together.
  places(marks, from, to) {
    const places = [];
    for (const mark of marks) {
      const left = ((mark.time - from) / (to - from)) * this.width;
      if (places.length && left - places.at(-1).left < NEAR_PIXELS) places.at(-1).marks.push(mark);
      else places.push({ left, marks: [mark] });
    }
    return places;
  }

  // Show the text of marks, or hide it again.
  async open(marks) {
    const isOpen = this.opened === marks[0] && !get("mark").hidden;
    this.opened = marks[0];
    get("mark").hidden = isOpen;
    if (isOpen) return;
    const texts = [];
    for (const mark of marks.slice(0, 20)) {
      mark.text ??= await textOf(this.device.name, mark.time).catch((error) => error.message);
      texts.push(`${describeTime(mark.time)}, ${mark.kind}\n${mark.text}`);
    }
    if (marks.length > texts.length) texts.push(`… and ${marks.length - texts.length} more. Zoom in to see them.`);
    setText(get("mark"), texts.join("\n\n"));
  }

  // Look for marks in the recording once the user rests, from before the page was there.
  look(from, to) {
    if (!this.device.recording || to <= from || (this.recorded.from <= from && this.recorded.to >= to)) return;
    if (this.asked && this.asked.from <= from && this.asked.to >= to) return;
    const beside = (to - from) / 2;
    this.asked = { from: Math.floor(from - beside), to: Math.ceil(to) };
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(this.device, this.asked), REST_MS);
  }

  async load(device, asked) {
    const marks = await marksOf(device.name, asked.from, asked.to).catch(() => []);
    if (this.asked === asked) this.asked = null;
    if (device === this.device) this.recorded = { ...asked, marks };
  }
}

async function marksOf(device, from, to) {
  const recording = table(device, "recording");
  const found = await query(
    `select epoch_ms(time) as time, data from ${recording} where ${within(from, to)} and direction = 'rx' ` +
      `and regexp_matches(data::varchar, '${ANY}', 'i') order by time limit ${MAX_FOUND}`,
  );
  const gaps = await query(
    `select epoch_ms(coalesce(from_time, to_time)) as time, why, bytes from ${table(device, "gaps")} ` +
      `where coalesce(to_time, from_time) >= '${new Date(from).toISOString()}' order by 1 limit ${MAX_FOUND}`,
  );
  const marks = found.flatMap(({ time, data }) => {
    const kinds = linesOf([data]).map(kindOf);
    const kind = ORDER.find((each) => kinds.includes(each));
    return kind ? [{ time, kind }] : [];
  });
  // A traceback has lines with errors, too: what follows a mark at once belongs to it.
  const first = marks.filter(({ time }, place) => place === 0 || time - marks[place - 1].time > 100);
  return [...first, ...gaps.map(({ time, why }) => ({ time, kind: "gap", text: why }))];
}

// The lines of a recording around a time.
async function textOf(device, time) {
  const rows = await query(
    `select epoch_ms(time) as time, data from ${table(device, "recording")} ` +
      `where ${within(time - BEFORE_MS, time + AFTER_MS)} and direction = 'rx' order by seq limit 500`,
  );
  const before = linesOf(rows.filter((row) => row.time < time).map(({ data }) => data)).slice(-BEFORE_LINES);
  return [...before, ...linesOf(rows.filter((row) => row.time >= time).map(({ data }) => data)).slice(0, TEXT_LINES)].join("\n");
}

// The lines of chunks, which are base64.
function linesOf(chunks) {
  const bytes = Uint8Array.from(chunks.map(atob).join(""), (character) => character.charCodeAt(0));
  return new TextDecoder().decode(bytes).split(/\r?\n/).filter((line) => line);
}

function kindOf(line) {
  return Object.keys(KINDS).find((kind) => KINDS[kind].test(line));
}
