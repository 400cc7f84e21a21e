// Shows the beginning of a file in a dialog: the first rows of a table, or the first 4 kB of a text.

import { ask, fileUrl } from "./asking.js";
import { BROKEN, beginning, readRows, tableOf } from "./rows.js";

const TEXT_BYTES = 4096;
const MAX_ROWS = 50;
// A file up to this size is read as a whole: all of it decides the types of its columns.
const SAMPLE_BYTES = 65536;
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
    const rows = hasRows && (await firstRows(url, size, stop).catch(noRows));
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
  // `size` is that of a listing: the file may be longer by now.
  const { bytes, ended } = await beginning(await ask(url, { headers, signal: stop.signal }), TEXT_BYTES);
  if (ended === "broken") throw new Error(BROKEN);
  const element = document.createElement("pre");
  const text = new TextDecoder().decode(bytes, { stream: size > bytes.length });
  if (/[\0-\x08\x0e-\x1a]/.test(text)) return { element, text: "This file is not text. Download it instead." };
  element.textContent = text;
  if (!size) return { element, text: "The file is empty." };
  return { element, text: size > bytes.length ? `The first ${bytes.length} of ${size} bytes.` : "The whole file." };
}

// Of a large file, the board sends the beginning only.
async function firstRows(url, size, stop) {
  const query = size > SAMPLE_BYTES ? `format=jsonl&infer=sample&sample_rows=${MAX_ROWS}` : "format=jsonl";
  const answer = await ask(`${url}?${query}`, { signal: stop.signal });
  const { rows, all } = await readRows(answer, MAX_ROWS);
  const element = tableOf(rows);
  const told = JSON.parse(answer.headers.get("fastflight-summary") ?? "{}").text;
  const count = !rows.length ? "The file has no rows." : all ? `All ${rows.length} rows.` : `The first ${rows.length} rows.`;
  return { element, text: told ? `${count} Note: ${told}.` : count };
}

function tell(text, failed = false) {
  get("preview-said").textContent = text;
  get("preview-said").classList.toggle("failed", failed);
}
