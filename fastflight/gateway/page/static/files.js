// The files of the chosen device: folders, preview, download, upload, rename and delete.

import { ask, fetched, fileUrl, hasToken } from "./asking.js";
import { confirmed, typed } from "./dialogs.js";
import { preview } from "./preview.js";
import { Uploads, inBytes, pathIn } from "./uploads.js";

// Files with rows, by their endings. They can be downloaded as CSV or Parquet, too.
const ROWS = /\.(csv|jsonl|ndjson|arrow)$/i;
const TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const nameOf = (path) => path.slice(path.lastIndexOf("/") + 1);

export class Files {
  constructor() {
    this.device = null;
    this.path = "/";
    this.names = [];
    this.asked = 0;
    // Whether the folder could not be read because somebody else had the device.
    this.waits = false;
    // Whether somebody may have it since then. A program on the board is nobody: it may run for ever.
    this.held = false;
    this.panel = document.getElementById("files");
    this.uploads = new Uploads((device, folder) => {
      if (device === this.device && folder === this.path) this.enter(folder);
    });
    const input = document.getElementById("upload-file");
    input.addEventListener("change", () => {
      this.upload([...input.files]);
      input.value = ""; // so that the same file can be chosen again
    });
    this.acceptDrops();
  }

  // Show a device's files: its first folder, unless the device is already shown.
  open(device) {
    if (device === this.device) return;
    this.device = device;
    this.uploads.clear();
    this.enter("/");
  }

  leave() {
    this.device = null;
  }

  // Read the folder that could not be read, once nobody else has the device.
  freed(holder) {
    if (!this.waits || this.device === null) return;
    if (holder) this.held = true;
    else if (this.held) {
      this.enter(this.path);
      this.held = false;
    }
  }

  // Show a folder. With `text`, this message stays when the folder was read.
  async enter(path, text = "") {
    this.path = path;
    this.waits = false;
    this.held = true;
    this.trail();
    const asked = ++this.asked;
    tell("Reading the folder…");
    const rows = document.getElementById("entries");
    try {
      const entries = await listing(this.device, path);
      if (asked !== this.asked) return;
      this.names = entries.map((entry) => nameOf(entry.path));
      rows.replaceChildren(...entries.sort(foldersFirst).map((entry) => this.row(entry)));
      tell(text || (entries.length ? "" : "This folder is empty."));
    } catch (error) {
      if (asked !== this.asked) return;
      this.names = [];
      rows.replaceChildren();
      this.waits = error.code === "busy";
      tell(this.waits ? `${error.message} The folder is read when the device is free.` : error.message, true);
    }
  }

  trail() {
    const folders = this.path.split("/").filter(Boolean);
    const places = [["/", "/"], ...folders.map((name, place) => [name, `/${folders.slice(0, place + 1).join("/")}`])];
    document.getElementById("path").replaceChildren(...places.map(([name, path]) => action(name, () => this.enter(path))));
  }

  row(entry) {
    const row = document.createElement("tr");
    const [name, size, modified, actions] = ["name", "number", "modified", "actions"].map((kind) => {
      const cell = row.insertCell();
      cell.className = kind;
      return cell;
    });
    const shown = nameOf(entry.path);
    const isFolder = entry.kind === "folder";
    const hasRows = ROWS.test(shown);
    const device = this.device;
    if (entry.modified) modified.textContent = TIME.format(new Date(entry.modified));
    if (isFolder) {
      name.append(action(`${shown}/`, () => this.enter(entry.path)));
    } else {
      const show = () => preview(device, entry.path, entry.size, hasRows);
      name.append(action(shown, show));
      size.textContent = inBytes(entry.size);
      const url = fileUrl(device, entry.path);
      const stem = shown.replace(/\.[^.]*$/, "");
      actions.append(action("Preview", show), link("Download", url, shown));
      if (hasRows) {
        actions.append(link("CSV", `${url}?format=csv`, `${stem}.csv`));
        actions.append(link("Parquet", `${url}?format=parquet`, `${stem}.parquet`));
      }
    }
    const changes = [action("Rename", () => this.rename(entry.path)), action("Delete", () => this.remove(entry))];
    for (const each of changes) each.classList.add("write");
    actions.append(...changes);
    return row;
  }

  async rename(path) {
    const [device, folder] = [this.device, this.path];
    const old = nameOf(path);
    const name = await typed(`Rename ${old}`, old, "Rename", (text) => {
      if (!text.trim()) return "Type a name.";
      if (text.includes("/")) return "A name cannot contain a slash.";
      return text !== old && this.names.includes(text) ? taken(text) : "";
    });
    if (name === null || name === old) return;
    await this.change(device, folder, async () => {
      // A board replaces a file at the new name without asking, and the list on the screen may be old.
      const entries = await listing(device, folder);
      if (entries.some((entry) => nameOf(entry.path) === name)) throw new Error(taken(name));
      const body = JSON.stringify({ device, path, to: pathIn(folder, name) });
      await ask("/actions/file.rename", { method: "POST", body });
      return `${old} is now ${name}.`;
    });
  }

  async remove(entry) {
    const [device, folder] = [this.device, this.path];
    const name = nameOf(entry.path);
    const what = entry.kind === "folder" ? "Only an empty folder can be deleted." : `${inBytes(entry.size)} on ${device}.`;
    if (!(await confirmed(`Delete ${name}?`, `${what} This cannot be undone.`, "Delete"))) return;
    await this.change(device, folder, async () => {
      await ask(fileUrl(device, entry.path), { method: "DELETE" });
      return `${name} is deleted.`;
    });
  }

  // Do something on the device, then show its result and the folder, if the user is still there.
  async change(device, folder, work) {
    tell("Working…");
    const isHere = () => device === this.device && folder === this.path;
    try {
      const text = await work();
      if (isHere()) await this.enter(folder, text);
    } catch (error) {
      if (isHere()) tell(error.message, true);
    }
  }

  upload(files) {
    if (files.length && this.device !== null) this.uploads.add(files, this.device, this.path, this.names);
  }

  acceptDrops() {
    // A file that is dropped beside the panel must not replace the page.
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => event.preventDefault());
    const mark = (isOver) => this.panel.classList.toggle("dropping", isOver);
    this.panel.addEventListener("dragover", (event) => mark(event.dataTransfer.types.includes("Files")));
    this.panel.addEventListener("dragleave", (event) => this.panel.contains(event.relatedTarget) || mark(false));
    this.panel.addEventListener("drop", (event) => {
      mark(false);
      if (!this.panel.hasAttribute("data-may-write")) return;
      const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
      const files = items.filter((item) => !item.webkitGetAsEntry()?.isDirectory).map((item) => item.getAsFile());
      if (files.length < items.length) tell("Folders cannot be uploaded here. Use fastflight sync.", true);
      this.upload(files);
    });
  }
}

async function listing(device, path) {
  return (await (await ask(fileUrl(device, path))).json()).entries;
}

function taken(name) {
  return `${name} already exists. Choose another name, or delete that file first.`;
}

function tell(text, failed = false) {
  const element = document.getElementById("files-said");
  element.textContent = text;
  element.classList.toggle("failed", failed);
}

function action(text, act) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "link";
  button.textContent = text;
  button.addEventListener("click", act);
  return button;
}

function link(text, url, name) {
  const anchor = document.createElement("a");
  anchor.textContent = text;
  anchor.href = url;
  anchor.download = name;
  if (hasToken()) anchor.addEventListener("click", (event) => download(event, url, name));
  return anchor;
}

// A link sends no header with a token, so the content is fetched first, and then saved.
async function download(event, url, name) {
  event.preventDefault();
  tell(`${name}: reading…`);
  try {
    const anchor = document.createElement("a");
    anchor.href = await fetched(url);
    anchor.download = name;
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(anchor.href), 60000);
    tell("");
  } catch (error) {
    tell(error.message, true);
  }
}

function foldersFirst(one, other) {
  return (other.kind === "folder") - (one.kind === "folder") || one.path.localeCompare(other.path);
}
