// Uploads: files that were chosen or dropped are sent one after the other, with progress, and can be cancelled.

import { fileUrl, proof, refusal } from "./asking.js";
import { confirmed } from "./dialogs.js";

export class Uploads {
  // `changed(device, folder)` is called when a folder may have changed.
  constructor(changed) {
    this.changed = changed;
    this.list = document.getElementById("uploads");
    this.waiting = [];
    this.running = false;
  }

  // Upload files into a folder. `names`: the names in the folder, which are replaced only if the user agrees.
  async add(files, device, folder, names) {
    for (const file of files) {
      const replaces = names.includes(file.name);
      if (replaces && !(await confirmed(`Replace ${file.name}?`, `${device}:${folder} already has it.`, "Replace"))) continue;
      this.waiting.push(new Upload(file, device, folder, replaces, this.list));
    }
    if (this.running) return;
    this.running = true;
    while (this.waiting.length) {
      const upload = this.waiting.shift();
      if (await upload.send()) this.changed(upload.device, upload.folder);
    }
    this.running = false;
  }

  // Remove the messages of uploads that have ended.
  clear() {
    for (const row of [...this.list.children]) if (row.dataset.ended) row.remove();
  }
}

class Upload {
  constructor(file, device, folder, replaces, list) {
    this.file = file;
    this.device = device;
    this.folder = folder;
    this.url = fileUrl(device, pathIn(folder, file.name));
    this.name = `${device}:${pathIn(folder, file.name)}`;
    this.replaces = replaces;
    this.cancelled = false;
    this.request = null;
    this.row = document.createElement("li");
    this.text = this.row.appendChild(document.createElement("span"));
    this.progress = this.row.appendChild(document.createElement("progress"));
    this.progress.max = 1;
    this.progress.value = 0;
    this.button = this.row.appendChild(document.createElement("button"));
    this.button.type = "button";
    this.button.textContent = "Cancel";
    this.button.addEventListener("click", () => this.cancel());
    this.text.textContent = `${this.name}: waiting`;
    list.append(this.row);
  }

  cancel() {
    this.cancelled = true;
    if (this.request) this.request.abort();
    else this.end(`${this.name}: cancelled`);
  }

  // Send the file; return whether the folder may have changed.
  send() {
    if (this.cancelled) return false;
    return new Promise((resolve) => {
      const request = (this.request = new XMLHttpRequest()); // `fetch` does not report progress
      const end = (text, failed = false, mayChange = false) => {
        this.end(`${this.name}: ${text}`, failed);
        resolve(mayChange);
      };
      request.open("PUT", this.url);
      for (const [name, value] of Object.entries(proof())) request.setRequestHeader(name, value);
      // The bytes are stored unchanged, whatever type the browser takes them for.
      request.setRequestHeader("Content-Type", "application/octet-stream");
      // A file that has appeared meanwhile is not replaced.
      if (!this.replaces) request.setRequestHeader("If-None-Match", "*");
      request.upload.onprogress = (event) => {
        this.progress.value = event.lengthComputable ? event.loaded / event.total : 0;
        if (this.progress.value < 1) return;
        this.progress.removeAttribute("value"); // for how long is not known
        this.text.textContent = `${this.name}: sent; the device writes and verifies it…`;
      };
      request.onload = () => {
        if (request.status === 201) {
          end(`${inBytes(JSON.parse(request.responseText).bytes)} written and verified`, false, true);
        } else if (request.status === 412) end("not uploaded: a file of this name has appeared meanwhile", true);
        else end(refusal(request.status, request.responseText).message, true);
      };
      request.onerror = () => end("the server stopped answering before the device had confirmed it", true, true);
      request.onabort = () => end("cancelled before the device had confirmed it", false, true);
      this.text.textContent = `${this.name}: sending…`;
      request.send(this.file);
    });
  }

  end(text, failed = false) {
    this.text.textContent = text;
    this.text.classList.toggle("failed", failed);
    this.progress.remove();
    this.button.remove();
    this.row.dataset.ended = "yes";
  }
}

export function pathIn(folder, name) {
  return `${folder === "/" ? "" : folder}/${name}`;
}

export function inBytes(size) {
  if (size < 1000) return `${size} B`;
  return size < 1e6 ? `${(size / 1000).toFixed(1)} kB` : `${(size / 1e6).toFixed(1)} MB`;
}
