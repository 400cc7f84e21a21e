// A browser's side of the relay: TCP streams through the gateway, over one WebSocket. An ES module, without a build step.
//
//     import { connect } from "/page/relay.js";
//     const relay = await connect();                        // ws://HOST/relay, HOST being this page's
//     const stream = await relay.open("127.0.0.1:2218");    // a RelayError says why not
//     const writer = stream.writable.getWriter();
//     await writer.write(new TextEncoder().encode("hello"));
//     for await (const bytes of stream.readable) ...         // Uint8Array; ends when the target does
//
// `readable` takes no more from the gateway than WINDOW bytes that nobody has read, and `writable` resolves a write when
// the gateway has given credit for it. Closing `writable` ends that direction alone. `stream.close()` ends both.
// The wire format is in fastflight/protocol/relay.py.

const OPEN = 1, OPENED = 2, DATA = 3, END = 4, CLOSE = 5, CREDIT = 6;
const REASONS = ["done", "refused", "unreachable", "timeout", "reset", "limit", "violation", "shutdown"];
const HEADER = 8;
const WINDOW = 1024 * 1024;
// Of a frame that is sent: one write of a page that copies a file must not hold up its other streams.
const PIECE = 64 * 1024;

/** Why a stream or the connection ended: `reason` is one of REASONS, the message is for people. */
export class RelayError extends Error {
  constructor(code, text) {
    super(text || REASONS[code] || `code ${code}`);
    this.name = "RelayError";
    this.reason = REASONS[code] ?? "unknown";
  }
}

/** A connection to the relay at `url`, by default that of the gateway that this page is from. */
export function connect(url = location.origin.replace(/^http/, "ws") + "/relay") {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => resolve(new Relay(socket));
    socket.onerror = () => reject(new RelayError(2, `${url} cannot be reached`));
  });
}

/** One connection, and its streams. */
export class Relay {
  #socket;
  #streams = new Map();
  #last = 0;
  #error = null;

  constructor(socket) {
    this.#socket = socket;
    socket.onmessage = (message) => this.#heard(message.data);
    socket.onerror = null;
    socket.onclose = (event) => this.#ended(this.#error ?? new RelayError(7, event.reason || "the connection ended"));
  }

  /** A stream to `target`, `host:port`, once it is connected. */
  open(target) {
    if (this.#socket.readyState !== WebSocket.OPEN) return Promise.reject(new RelayError(7, "the connection ended"));
    const number = this.#free();
    if (!number) return Promise.reject(new RelayError(5, "every number of a stream is in use"));
    const name = new TextEncoder().encode(target);
    const body = new Uint8Array(4 + name.length);
    new DataView(body.buffer).setUint32(0, WINDOW);
    body.set(name, 4);
    return new Promise((resolve, reject) => {
      const send = (type, payload) => this.#send(type, number, payload);
      this.#streams.set(number, new Stream(target, send, resolve, reject));
      this.#send(OPEN, number, body);
    });
  }

  /** End the connection and all streams. */
  close() {
    this.#socket.close(1000);
  }

  #free() {
    for (let tried = 0; tried < 0xffff; tried++) {
      this.#last = (this.#last % 0xffff) + 1;
      if (!this.#streams.has(this.#last)) return this.#last;
    }
    return 0;
  }

  #send(type, number, payload = new Uint8Array(0)) {
    if (this.#socket.readyState !== WebSocket.OPEN) return;
    const frame = new Uint8Array(HEADER + payload.length);
    const view = new DataView(frame.buffer);
    view.setUint8(0, type);
    view.setUint16(2, number);
    view.setUint32(4, payload.length);
    frame.set(payload, HEADER);
    this.#socket.send(frame);
  }

  #heard(data) {
    // The gateway puts whole frames into a message.
    for (let at = 0; at < data.byteLength; ) {
      const view = new DataView(data, at, HEADER);
      const type = view.getUint8(0), flags = view.getUint8(1), number = view.getUint16(2), size = view.getUint32(4);
      const payload = new Uint8Array(data, at + HEADER, size);
      at += HEADER + size;
      const stream = this.#streams.get(number);
      if (number === 0) this.#error = new RelayError(flags, new TextDecoder().decode(payload));
      else if (stream && stream.heard(type, flags, payload)) this.#streams.delete(number);
    }
  }

  #ended(error) {
    for (const stream of this.#streams.values()) stream.fail(error);
    this.#streams.clear();
  }
}

/** One stream: `readable` and `writable` are of bytes. */
class Stream {
  #send;
  #opened;
  #refused;
  #reading;
  #credit = 0;
  #unread = 0;
  #taken = 0;
  #connected = false;
  #ended = false;
  #targetEnded = false;
  #closed = false;
  #error = null;
  #wake = null;

  constructor(target, send, opened, refused) {
    this.target = target;
    this.#send = send;
    this.#opened = opened;
    this.#refused = refused;
    // What is queued is counted by credit: a high-water mark of 0 would have `pull` called once for each read alone.
    const counted = { highWaterMark: WINDOW, size: (bytes) => bytes.length };
    this.readable = new ReadableStream(
      {
        start: (controller) => void (this.#reading = controller),
        pull: () => this.#give(),
        cancel: () => this.close(),
      },
      counted,
    );
    this.writable = new WritableStream({
      write: (bytes) => this.#write(bytes),
      close: () => this.#end(),
      abort: () => this.close(),
    });
  }

  /** End both directions at once. What is on its way is lost. */
  close() {
    if (this.#closed) return;
    this.#closed = true;
    this.#send(CLOSE);
    this.#stop(new RelayError(0, "closed"));
  }

  /** A frame of the gateway. True when the stream's number is free again. */
  heard(type, flags, payload) {
    const count = () => new DataView(payload.buffer, payload.byteOffset, 4).getUint32(0);
    if (type === CLOSE) {
      if (!this.#closed) {
        this.#closed = true;
        this.#send(CLOSE);
        this.#stop(new RelayError(flags, new TextDecoder().decode(payload)), flags === 0);
      }
      return true;
    }
    if (this.#closed) return false; // sent before the gateway knew
    if (type === OPENED) {
      this.#connected = true;
      this.#credit += count();
      this.#opened(this);
    } else if (type === CREDIT) {
      this.#credit += count();
      this.#wake?.();
    } else if (type === DATA) {
      this.#unread += payload.length;
      this.#reading.enqueue(payload);
      this.#give();
    } else if (type === END) {
      this.#targetEnded = true;
      this.#reading.close();
    }
    return false;
  }

  /** The connection is gone. */
  fail(error) {
    this.#closed = true;
    this.#stop(error);
  }

  #stop(error, wasDone = false) {
    this.#error = error;
    if (!this.#connected) this.#refused(error);
    if (!this.#targetEnded) {
      this.#targetEnded = true;
      try {
        if (wasDone) this.#reading.close();
        else this.#reading.error(error);
      } catch {} // cancelled by its reader
    }
    this.#wake?.();
  }

  /** Give credit back for what the reader has taken: what is unread is what fills the queue. */
  #give() {
    if (this.#closed || this.#targetEnded) return;
    const unread = WINDOW - this.#reading.desiredSize;
    this.#taken += this.#unread - unread;
    this.#unread = unread;
    if (this.#taken * 2 < WINDOW) return;
    const body = new Uint8Array(4);
    new DataView(body.buffer).setUint32(0, this.#taken);
    this.#taken = 0;
    this.#send(CREDIT, body);
  }

  async #write(data) {
    const bytes = data instanceof Uint8Array ? data : new Uint8Array(data.buffer ?? data, data.byteOffset ?? 0, data.byteLength);
    for (let at = 0; at < bytes.length; ) {
      while (!this.#credit && !this.#closed) await new Promise((resolve) => (this.#wake = resolve));
      if (this.#closed) throw this.#error ?? new RelayError(0, "closed");
      const size = Math.min(this.#credit, PIECE, bytes.length - at);
      this.#credit -= size;
      this.#send(DATA, bytes.subarray(at, at + size));
      at += size;
    }
  }

  #end() {
    if (this.#closed || this.#ended) return;
    this.#ended = true;
    this.#send(END);
  }
}
