// The files of the chosen device: folders, downloads, uploads.

import { ask, fetched, fileUrl, hasToken, proof, refusal } from "./asking.js";

// Files that have rows, by their endings, and so can be had as CSV or Parquet, too.
const ROWS = /\.(csv|jsonl|ndjson|arrow)$/i;

export class Files {
  constructor() {
    this.device = null;
    this.path = "/";
    this.asked = 0;
    // Whether the folder could not be read because somebody else had the device.
    this.waits = false;
    this.input = document.getElementById("upload-file");
    this.input.addEventListener("change", () => this.input.files.length && this.upload(this.input.files[0]));
  }

  // Show a device's files; its first folder unless it is the one at hand.
  open(device) {
    if (device === this.device) return;
    this.device = device;
    this.enter("/");
  }

  leave() {
    this.device = null;
  }

  // Read the folder that could not be read, once nobody else has the device.
  freed(holder) {
    if (this.waits && !holder && this.device !== null) this.enter(this.path);
  }

  async enter(path) {
    this.path = path;
    this.waits = false;
    this.trail();
    const asked = ++this.asked;
    const said = document.getElementById("files-said");
    const rows = document.getElementById("entries");
    tell(said, "Reading the folder…");
    try {
      const answer = await ask(fileUrl(this.device, path));
      const { entries } = await answer.json();
      if (asked !== this.asked) return;
      rows.replaceChildren(...entries.sort(foldersFirst).map((entry) => this.row(entry)));
      tell(said, entries.length ? "" : "This folder is empty.");
    } catch (error) {
      if (asked !== this.asked) return;
      rows.replaceChildren();
      this.waits = error.code === "busy";
      tell(said, this.waits ? `${error.message} The folder is read when the device is free.` : error.message, true);
    }
  }

  trail() {
    const folders = this.path.split("/").filter(Boolean);
    const places = [["/", "/"], ...folders.map((name, place) => [name, `/${folders.slice(0, place + 1).join("/")}`])];
    document.getElementById("path").replaceChildren(
      ...places.map(([name, path]) => {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = name;
        button.addEventListener("click", () => this.enter(path));
        return button;
      }),
    );
  }

  row(entry) {
    const row = document.createElement("tr");
    const [name, size, downloads] = [0, 1, 2].map(() => row.appendChild(document.createElement("td")));
    const shown = entry.path.slice(entry.path.lastIndexOf("/") + 1);
    downloads.className = "downloads";
    if (entry.kind === "folder") {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `${shown}/`;
      button.addEventListener("click", () => this.enter(entry.path));
      name.append(button);
      return row;
    }
    name.textContent = shown;
    size.textContent = inBytes(entry.size);
    const url = fileUrl(this.device, entry.path);
    const stem = shown.replace(/\.[^.]*$/, "");
    downloads.append(link("raw", url, shown));
    if (ROWS.test(shown)) {
      downloads.append(link("CSV", `${url}?format=csv`, `${stem}.csv`));
      downloads.append(link("Parquet", `${url}?format=parquet`, `${stem}.parquet`));
    }
    return row;
  }

  upload(file) {
    const said = document.getElementById("upload-said");
    const progress = document.getElementById("upload-progress");
    const path = `${this.path === "/" ? "" : this.path}/${file.name}`;
    // As bytes, whatever the browser takes it for. `fetch` does not tell how far it is.
    const request = new XMLHttpRequest();
    request.open("PUT", fileUrl(this.device, path));
    for (const [name, value] of Object.entries(proof())) request.setRequestHeader(name, value);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = (event) => {
      progress.value = event.lengthComputable ? event.loaded / event.total : 0;
      if (progress.value === 1) tell(said, `${file.name}: sent; the device writes and verifies it…`);
    };
    const end = (text, failed) => {
      progress.hidden = true;
      this.input.disabled = false;
      this.input.value = "";
      tell(said, text, failed);
    };
    request.onload = () => {
      if (request.status !== 201) return end(refusal(request.status, request.responseText).message, true);
      const written = JSON.parse(request.responseText);
      end(`${written.path}: ${inBytes(written.bytes)} written and verified.`);
      this.enter(this.path);
    };
    request.onerror = () => end("the server does not answer; the old file is as it was", true);
    tell(said, `${file.name}: sending…`);
    progress.value = 0;
    progress.hidden = false;
    this.input.disabled = true;
    request.send(file);
  }
}

function tell(element, text, failed = false) {
  element.textContent = text;
  element.classList.toggle("failed", failed);
}

function link(text, url, name) {
  const anchor = document.createElement("a");
  anchor.textContent = text;
  anchor.href = url;
  anchor.download = name;
  if (hasToken()) anchor.addEventListener("click", (event) => download(event, url, name));
  return anchor;
}

// Where a header has to go with it, what is at `url` is fetched first, and then saved.
async function download(event, url, name) {
  event.preventDefault();
  const said = document.getElementById("files-said");
  tell(said, `${name}: reading…`);
  try {
    const anchor = document.createElement("a");
    anchor.href = await fetched(url);
    anchor.download = name;
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(anchor.href), 60000);
    tell(said, "");
  } catch (error) {
    tell(said, error.message, true);
  }
}

function foldersFirst(one, other) {
  return (other.kind === "folder") - (one.kind === "folder") || one.path.localeCompare(other.path);
}

function inBytes(size) {
  if (size < 1000) return `${size} B`;
  return size < 1e6 ? `${(size / 1000).toFixed(1)} kB` : `${(size / 1e6).toFixed(1)} MB`;
}
