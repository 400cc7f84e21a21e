// The REPL of the chosen device. Output and input pass as bytes, unchanged.

import { FitAddon, Terminal } from "/page/xterm/index.js";

import { ask, said } from "./asking.js";

// Larger pastes are sent in parts: a message has at most 1 MiB.
const MAX_SENT_BYTES = 64 * 1024;
// Keys that a phone's keyboard does not have, and what they send.
const KEYS = { "Ctrl-C": "\x03", "Ctrl-D": "\x04", Tab: "\t", "\u2191": "\x1b[A", "\u2193": "\x1b[B" };
const FREE = "Nobody else can use the device while its REPL is open.";

export class ReplTerminal {
  constructor() {
    this.device = null;
    this.socket = null;
    this.terminal = null;
    this.says = document.getElementById("terminal-said");
    this.opens = document.getElementById("terminal-open");
    this.closes = document.getElementById("terminal-close");
    this.screen = document.getElementById("screen");
    this.opens.addEventListener("click", () => this.open());
    this.closes.addEventListener("click", () => this.close("Closed. Others can use the device again."));
    this.keys = document.getElementById("keys");
    this.keys.append(...Object.entries(KEYS).map(([name, text]) => this.key(name, text)));
    new ResizeObserver(() => this.fit()).observe(this.screen);
  }

  key(name, text) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    // The terminal keeps the focus, so that the phone's keyboard stays.
    button.addEventListener("pointerdown", (event) => event.preventDefault());
    button.addEventListener("mousedown", (event) => event.preventDefault());
    button.addEventListener("click", () => this.send(text));
    return button;
  }

  // Set the device, and whether the terminal can be seen. The REPL of another device is closed, so that others can use it.
  choose(device, visible) {
    if (device !== this.device) {
      this.close(FREE);
      this.device = device;
      this.terminal?.reset();
    }
    if (visible) requestAnimationFrame(() => this.fit());
  }

  async open() {
    this.close("Opening…");
    this.opens.disabled = true;
    this.make();
    const device = this.device;
    try {
      const asked = JSON.stringify({ type: "device.session", device });
      const { ticket } = await (await ask("/tickets?for=repl", { method: "POST", body: asked })).json();
      if (device === this.device) this.connect(device, ticket);
    } catch (error) {
      this.tell(error.message, true);
      this.opens.disabled = false;
    }
  }

  connect(device, ticket) {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/ws/repl/${encodeURIComponent(device)}?ticket=${ticket}`);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    let why = "";
    socket.onmessage = (event) => {
      if (socket !== this.socket) return;
      if (event.data instanceof ArrayBuffer) return this.terminal.write(new Uint8Array(event.data));
      const message = JSON.parse(event.data);
      if (message.ready) this.ready();
      else if (message.error) why = said(message.error);
      else if (message.trailer) why = `The session has ended: ${message.trailer.why ?? message.trailer.ended}.`;
      else if (message.note?.gap) this.tell(`Missing: ${message.note.gap.why}.`, true);
    };
    socket.onclose = (event) => {
      if (socket !== this.socket) return;
      this.socket = null;
      this.ended(why || event.reason || "The connection was lost. Open it again when the server is back.", true);
    };
  }

  ready() {
    this.tell(`Connected to ${this.device}. Ctrl-C interrupts its program, Ctrl-D restarts it.`);
    this.closes.disabled = false;
    this.keys.hidden = false;
    this.terminal.options.disableStdin = false;
    this.terminal.focus();
    this.send("\r"); // makes the device print its prompt
  }

  close(why) {
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.ended(why);
  }

  ended(why, failed = false) {
    this.opens.disabled = false;
    this.closes.disabled = true;
    this.keys.hidden = true;
    if (this.terminal) this.terminal.options.disableStdin = true;
    this.tell(why, failed);
  }

  send(text) {
    this.sendBytes(new TextEncoder().encode(text));
  }

  sendBytes(bytes) {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    for (let start = 0; start < bytes.length; start += MAX_SENT_BYTES) {
      this.socket.send(bytes.subarray(start, start + MAX_SENT_BYTES));
    }
  }

  // Make the terminal when it is first used: one that cannot be seen has no size.
  make() {
    if (this.terminal) return;
    this.terminal = new Terminal({
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"),
      fontSize: 14,
      cursorBlink: true,
      scrollback: 5000,
      convertEol: true, // a program that ends its lines with LF alone would print a staircase
      theme: { background: "#11161d", foreground: "#e6ebf1" },
    });
    this.terminal.loadAddon((this.fitting = new FitAddon()));
    this.terminal.open(this.screen);
    this.terminal.onData((text) => this.send(text));
    this.terminal.onBinary((text) => this.sendBytes(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
    this.terminal.attachCustomKeyEventHandler((event) => this.isForDevice(event));
    this.terminal.textarea.setAttribute("aria-describedby", "terminal-keys");
    this.fit();
  }

  // Whether a key goes to the device. Ctrl-C copies if text is selected. Escape leaves the terminal: Tab goes to the
  // device, so users without a mouse have no other way out.
  isForDevice(event) {
    if (event.key === "Escape" && !event.ctrlKey && !event.altKey) {
      if (event.type === "keydown") (this.closes.disabled ? this.opens : this.closes).focus();
      return false;
    }
    return !(event.ctrlKey && event.key === "c" && this.terminal.hasSelection());
  }

  fit() {
    if (this.terminal && this.screen.clientWidth) this.fitting.fit();
  }

  tell(text, failed = false) {
    this.says.textContent = text;
    this.says.classList.toggle("failed", failed);
  }
}
