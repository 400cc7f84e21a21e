// The controls above the charts: pause and go on, show more or less time; and what the charts do not show.

import { setText } from "./devices.js";
import { describeRange, describeSpan } from "./ticks.js";
import { ZOOM_STEP } from "./timeview.js";

const SPANS = [10, 60, 300, 900, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600].map((seconds) => 1000 * seconds);
// Keys that do something else where these are focused.
const TYPING = "button, input, select, textarea, a, dialog, [role=tab], [contenteditable], .xterm";
const get = (id) => document.getElementById(id);

export class ViewBar {
  constructor(view) {
    this.view = view;
    get("view-pause").addEventListener("click", () => this.toggle());
    get("view-out").addEventListener("click", () => view.zoom(ZOOM_STEP));
    get("view-in").addEventListener("click", () => view.zoom(1 / ZOOM_STEP));
    const spans = get("view-span");
    this.now = spans.appendChild(new Option("", ""));
    this.now.hidden = true;
    for (const span of SPANS) spans.append(new Option(describeSpan(span), String(span)));
    spans.addEventListener("change", () => {
      const { from, to } = view.range;
      const [span, middle] = [Number(spans.value), (from + to) / 2];
      if (view.isLive) view.follow(span);
      else view.fix(middle - span / 2, middle + span / 2);
      spans.value = "";
    });
    addEventListener("keydown", (event) => {
      if (event.key !== " " || event.target.closest(TYPING) || get("view").offsetParent === null) return;
      event.preventDefault();
      this.toggle();
    });
  }

  toggle() {
    if (this.view.isLive) this.view.pause();
    else this.view.follow();
  }

  // `notes` are sentences about what is shown.
  show(device, hasCharts, notes = []) {
    get("view").hidden = !hasCharts;
    if (!hasCharts) return;
    const { range, isLive, newest } = this.view;
    setText(get("view-pause"), isLive ? "Pause" : "Back to live");
    get("view-pause").setAttribute("aria-pressed", String(!isLive));
    setText(this.now, describeSpan(range.to - range.from));
    get("view-span").value = "";
    const behind = newest - range.to;
    const said = isLive ? [] : [`${describeRange(range.from, range.to)}${behind > 0 ? `, ${describeSpan(behind)} behind` : ""}.`];
    if (device.skipped) said.push(`${device.skipped} rows are not drawn: they came too fast.`);
    setText(get("view-said"), [...said, ...notes].join(" "));
  }
}
