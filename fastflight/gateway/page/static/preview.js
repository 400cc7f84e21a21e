// Shows the beginning of a file in a dialog: the first rows of a table, or the first 4 kB of a text.

import { ask, fileUrl } from "./asking.js";

const TEXT_BYTES = 4096;
const MAX_ROWS = 50;
// Rows may be long: no more than this is read of them.
const ROWS_BYTES = 256 * 1024;
const BROKEN = "The answer was cut off. Try again.";
const get = (id) => document.getElementById(id);

get("preview-close").addEventListener("click", () => get("preview").close());

// Show the file at `path` of a device. `hasRows`: it can be read as a table.
export async function preview(device, path, size, hasRows) {
  const [dialog, content] = [get("preview"), get("preview-content")];
  const stop = new AbortController();
  dialog.onclose = () => stop.abort();
  get("preview-title").textContent = path;
  content.replaceChildren();
  tell("Reading…");
  dialog.showModal();
  try {
    const url = fileUrl(device, path);
    const rows = hasRows && (await firstRows(url, stop).catch(noRows));
    const shown = rows || (await firstText(url, size, stop));
    if (stop.signal.aborted) return;
    content.replaceChildren(shown.element);
    tell(shown.text);
  } catch (error) {
    if (!stop.signal.aborted) tell(error.message, true);
  }
}

// A file whose content does not fit its ending is shown as text.
function noRows(error) {
  if (error.status !== 422) throw error;
}

async function firstText(url, size, stop) {
  const headers = size > TEXT_BYTES ? { Range: `bytes=0-${TEXT_BYTES - 1}` } : {};
  // A board that cannot compute digests sends the whole file.
  const { bytes, ended } = await beginning(await ask(url, { headers, signal: stop.signal }), TEXT_BYTES);
  if (ended === "broken") throw new Error(BROKEN);
  const element = document.createElement("pre");
  const text = new TextDecoder().decode(bytes, { stream: size > bytes.length });
  if (/[\0-\x08\x0e-\x1a]/.test(text)) return { element, text: "This file is not text. Download it instead." };
  element.textContent = text;
  if (!size) return { element, text: "The file is empty." };
  return { element, text: size > bytes.length ? `The first ${bytes.length} of ${size} bytes.` : "The whole file." };
}

async function firstRows(url, stop) {
  const answer = await ask(`${url}?format=jsonl`, { signal: stop.signal });
  const { bytes, ended } = await beginning(answer, ROWS_BYTES, MAX_ROWS + 1);
  const lines = new TextDecoder().decode(bytes).split("\n");
  lines.pop(); // empty, or a row that was cut
  const rows = lines.slice(0, MAX_ROWS).map((line) => JSON.parse(line));
  // An error among the rows is the last line of an answer that is cut off.
  if (ended === "broken") throw new Error(rows.at(-1)?.error?.text ?? BROKEN);
  const element = tableOf(rows);
  if (!rows.length) return { element, text: "The file has no rows." };
  const all = ended === "complete" && lines.length <= MAX_ROWS;
  return { element, text: all ? `All ${rows.length} rows.` : `The first ${rows.length} rows.` };
}

// The first bytes of an answer, until it has so many lines; the rest is cancelled. `ended` says how: "complete",
// "enough" or "broken".
async function beginning(answer, maxBytes, maxLines = Infinity) {
  const reader = answer.body.getReader();
  const pieces = [];
  let [size, lines, ended] = [0, 0, "enough"];
  try {
    while (size < maxBytes && lines < maxLines) {
      const { done, value } = await reader.read();
      if (done) {
        ended = "complete";
        break;
      }
      pieces.push(value);
      size += value.length;
      lines += value.reduce((sum, byte) => sum + (byte === 10), 0);
    }
    await reader.cancel();
  } catch {
    ended = "broken";
  }
  return { bytes: new Uint8Array(await new Blob(pieces).arrayBuffer()).subarray(0, maxBytes), ended };
}

function tableOf(rows) {
  const table = document.createElement("table");
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const head = table.createTHead().insertRow();
  for (const name of names) {
    const cell = head.appendChild(document.createElement("th"));
    cell.scope = "col";
    cell.textContent = name;
  }
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const name of names) {
      const value = row[name];
      const cell = line.insertCell();
      cell.textContent = value == null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
      if (typeof value === "number") cell.className = "number";
    }
  }
  return table;
}

function tell(text, failed = false) {
  get("preview-said").textContent = text;
  get("preview-said").classList.toggle("failed", failed);
}
