// Lets search work when the site is opened from a folder (file://), where browsers start no workers. A frame without content
// runs the worker's script instead: the same messages go in and out, on the page's own thread. Material for MkDocs passes
// the script's address to `Worker` and uses `postMessage`, `onmessage` and message events only.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      // What a worker calls on itself reaches the page.
      inner.postMessage = (data) => {
        const event = new MessageEvent("message", {data});
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      inner.importScripts = (...addresses) => addresses.reduce(
        (done, each) => done.then(() => this.load(inner, each)), Promise.resolve());
      this.ready = this.load(inner, address).then(() => { this.inner = inner; });
    }
    load(inner, address) {
      return new Promise((resolve, reject) => {
        const script = inner.document.createElement("script");
        script.src = new URL(address, location.href).href;
        script.onload = resolve;
        script.onerror = reject;
        inner.document.head.append(script);
      });
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", {data})));
    }
    terminate() {}
  };
}
