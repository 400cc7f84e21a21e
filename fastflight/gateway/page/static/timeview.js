// The span of time that the charts of a device share: the newest data, or a fixed range while the user looks at it.

const LEAST_MS = 20;
const MOST_MS = 20 * 365 * 86_400_000;
const FIRST_SPAN_MS = 60_000;
// A wheel turns this far for a factor of e.
const WHEEL_TURN = 600;
const STEP_PART = 0.2;
export const ZOOM_STEP = 1.5;
// The page is scrolled by wheel, too: a wheel that has begun to do this does not zoom the chart that comes under it.
const SCROLL_REST_MS = 400;

let scrolledAt = -Infinity;
addEventListener("scroll", () => (scrolledAt = performance.now()), { capture: true, passive: true });

export class TimeView {
  // `changed()` is called when the charts must be drawn again, `moved()` when the user has chosen another range.
  // `whole`: show all data until the user chooses a span, not the newest minute.
  constructor(changed, moved = () => {}, whole = false) {
    this.changed = changed;
    this.moved = moved;
    this.firstSpan = whole ? Infinity : FIRST_SPAN_MS;
    this.cursor = null;
    this.reset();
  }

  reset() {
    // Until the user chooses a span, no time before the first data is shown.
    this.span = null;
    // The fixed range, or null to follow the newest data.
    this.fixed = null;
    // The times of all data in memory.
    [this.oldest, this.newest] = [null, null];
  }

  get isLive() {
    return this.fixed === null;
  }

  // What is shown.
  get range() {
    if (this.fixed) return this.fixed;
    const to = this.newest ?? Date.now();
    if (this.span !== null) return { from: to - this.span, to };
    return { from: Math.max(to - this.firstSpan, Math.min(this.oldest ?? 0, to - LEAST_MS)), to };
  }

  fix(from, to) {
    this.fixed = { from, to };
    this.tell();
  }

  pause() {
    const { from, to } = this.range;
    this.fix(from, to);
  }

  follow(span = this.span) {
    this.span = span;
    this.fixed = null;
    this.tell();
  }

  tell() {
    this.moved();
    this.changed();
  }

  // Show more (`factor` above 1) or less; `at` is the time that stays where it is. The newest data stays at the edge.
  zoom(factor, at = null) {
    const { from, to } = this.range;
    const span = Math.min(MOST_MS, Math.max(LEAST_MS, (to - from) * factor));
    if (this.isLive) return this.follow(span);
    const part = at === null ? 0.5 : (at - from) / (to - from);
    const begin = from + (to - from - span) * part;
    this.fix(begin, begin + span);
  }

  // Move by so many ms, at most until the newest data is in the middle.
  pan(ms) {
    const { from, to } = this.range;
    const most = Math.max(0, (this.newest ?? to) - (from + to) / 2);
    const moved = Math.min(ms, most);
    this.fix(from + moved, to + moved);
  }

  point(time) {
    if (time === this.cursor) return;
    this.cursor = time;
    this.changed();
  }

  // Let the user move in `plot`, which is drawn in `element`, by wheel, pointer and keys.
  control(element, plot) {
    const pointers = new Map();
    const timeAt = (event) => plot.timeAt(event.clientX - element.getBoundingClientRect().left, this.range);
    const perPixel = () => (this.range.to - this.range.from) / plot.pixels;
    element.addEventListener("wheel", (event) => {
      if (performance.now() - scrolledAt < SCROLL_REST_MS || event.ctrlKey) return;
      event.preventDefault();
      const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) this.pan(across * perPixel());
      else this.zoom(Math.exp(event.deltaY / WHEEL_TURN), timeAt(event));
    }, { passive: false });
    element.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      pointers.set(event.pointerId, event.clientX);
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (before !== undefined && event.clientX !== before) {
        const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
        pointers.set(event.pointerId, event.clientX);
        if (others.length) this.pinch(before - others[0], event.clientX - others[0], timeAt(event));
        else return this.pan((before - event.clientX) * perPixel()); // the time under the pointer stays the same
      }
      this.point(timeAt(event));
    });
    for (const name of ["pointerup", "pointercancel"]) {
      element.addEventListener(name, (event) => pointers.delete(event.pointerId));
    }
    element.addEventListener("pointerleave", () => this.point(null));
    element.addEventListener("dblclick", () => this.follow(null));
    element.addEventListener("keydown", (event) => {
      const width = this.range.to - this.range.from;
      const act = {
        ArrowLeft: () => this.pan(-STEP_PART * width),
        ArrowRight: () => this.pan(STEP_PART * width),
        "+": () => this.zoom(1 / ZOOM_STEP),
        "-": () => this.zoom(ZOOM_STEP),
        End: () => this.follow(),
        Home: () => this.fix(this.oldest, this.oldest + width),
      }[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act();
    });
  }

  // Two fingers that were `before` pixels apart are `now` apart.
  pinch(before, now, at) {
    if (Math.abs(before) > 20 && Math.abs(now) > 20) this.zoom(Math.abs(before / now), at);
  }
}
