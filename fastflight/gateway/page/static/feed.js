// The feed of all devices: a WebSocket that is opened again after growing delays, and the server's clock.

import { ask, hasToken } from "./asking.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10000;
// The server sends ten messages a second. After this time without one, the connection counts as lost.
const SILENT_MS = 4000;
// The code with which a WebSocket is closed when the token is no longer valid.
const UNPROVEN = 4401;

export class Feed {
  // `heard(message)` is called for each message, `changed(state)` with "connecting", "live" or "lost", and `signOut()`
  // when the token is no longer valid.
  constructor(heard, changed, signOut) {
    this.heard = heard;
    this.changed = changed;
    this.signOut = signOut;
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
      if (error.status === 401) this.signOut();
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
      if (!message.devices) return; // an error; the WebSocket is closed after it
      this.at = message.at;
      this.since = this.lastHeard = performance.now();
      this.wait = FIRST_WAIT_MS;
      this.state("live");
      this.heard(message);
    };
    socket.onclose = (event) => {
      if (socket !== this.socket) return;
      if (event.code === UNPROVEN) this.signOut();
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
