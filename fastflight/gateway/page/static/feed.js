// The fleet's feed: one WebSocket, opened again with back-off, and the server's clock as it tells it.

import { ask, hasToken } from "./asking.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10000;
// The server speaks ten times a second. A connection that has been silent for so long is as good as lost.
const SILENT_MS = 4000;
// What a WebSocket is closed with when the token is no longer good.
const UNPROVEN = 4401;

export class Feed {
  // `heard(message)` for each message, `changed(state)` with "connecting", "live" or "lost"; `putOut()` when who looks
  // may no longer.
  constructor(heard, changed, putOut) {
    this.heard = heard;
    this.changed = changed;
    this.putOut = putOut;
    this.wait = FIRST_WAIT_MS;
    this.at = null; // the server's clock, ms since 1970, when `this.since` was
    this.since = 0;
    this.retryAt = 0;
    this.open();
    setInterval(() => this.look(), 1000);
    addEventListener("online", () => this.again());
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.again());
  }

  // The server's time, also between messages and after them; null before the first.
  now() {
    return this.at === null ? null : this.at + (performance.now() - this.since);
  }

  async open() {
    if (!hasToken()) return this.connect("");
    if (this.asking) return;
    this.asking = true;
    try {
      const { ticket } = await (await ask("/tickets?for=fleet", { method: "POST" })).json();
      this.connect(`?ticket=${ticket}`);
    } catch (error) {
      if (error.status === 401) this.putOut();
      else this.lost();
    } finally {
      this.asking = false;
    }
  }

  connect(ticket) {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/ws/fleet${ticket}`);
    this.socket = socket;
    socket.onmessage = (event) => {
      if (socket !== this.socket) return;
      const message = JSON.parse(event.data);
      if (!message.devices) return; // it says why it ends, which is shown by what comes then
      this.at = message.at;
      this.since = this.lastHeard = performance.now();
      this.wait = FIRST_WAIT_MS;
      this.state("live");
      this.heard(message);
    };
    socket.onclose = (event) => {
      if (socket !== this.socket) return;
      if (event.code === UNPROVEN) this.putOut();
      else this.lost();
    };
    this.lastHeard = performance.now();
  }

  lost() {
    if (this.socket) {
      this.socket.onclose = null;
      this.socket.close();
    }
    this.socket = null;
    this.retryAt = performance.now() + this.wait;
    this.timer = setTimeout(() => this.open(), this.wait);
    this.wait = Math.min(LONGEST_WAIT_MS, this.wait * 2);
    this.state("lost");
  }

  again() {
    if (this.socket || this.current !== "lost") return;
    clearTimeout(this.timer);
    this.open();
  }

  look() {
    if (this.socket && performance.now() - this.lastHeard > SILENT_MS) this.lost();
  }

  state(state) {
    this.current = state;
    this.changed(state);
  }
}
