// The fleet's feed: one WebSocket, opened again with back-off, and the server's clock as it tells it.

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10000;
// The server speaks ten times a second. A connection that has been silent for so long is as good as lost.
const SILENT_MS = 4000;

export class Feed {
  // `heard(message)` for each message, `changed(state)` with "connecting", "live" or "lost".
  constructor(heard, changed) {
    this.heard = heard;
    this.changed = changed;
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

  open() {
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/fleet`);
    this.socket = socket;
    this.since = performance.now();
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
    socket.onclose = () => socket === this.socket && this.lost();
    this.lastHeard = performance.now();
  }

  lost() {
    this.socket.onclose = null;
    this.socket.close();
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
