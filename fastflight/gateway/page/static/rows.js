// Rows of an answer in JSON lines: reads the first ones, and shows them as a table.

export const BROKEN = "The answer was cut off. Try again.";
// Rows may be long: no more than this is read of a preview.
const PREVIEW_BYTES = 256 * 1024;

// The first rows of an answer, and whether these are all.
export async function readRows(answer, maxRows, maxBytes = PREVIEW_BYTES) {
  const { bytes, ended } = await beginning(answer, maxBytes, maxRows + 1);
  const lines = new TextDecoder().decode(bytes).split("\n");
  lines.pop(); // empty, or a row that was cut
  const rows = lines.slice(0, maxRows).map((line) => JSON.parse(line));
  // An error among the rows is the last line of an answer that is cut off.
  if (ended === "broken") throw new Error(rows.at(-1)?.error?.text ?? BROKEN);
  return { rows, all: ended === "complete" && lines.length <= maxRows };
}

// The first bytes of an answer, until it has so many lines; the rest is cancelled. `ended` says how: "complete",
// "enough" or "broken".
export async function beginning(answer, maxBytes, maxLines = Infinity) {
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

// A table of rows, whose columns are the keys of all of them. A value may be an element.
export function tableOf(rows) {
  const table = document.createElement("table");
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const head = table.createTHead().insertRow();
  for (const name of names) {
    const cell = head.appendChild(document.createElement("th"));
    cell.scope = "col";
    cell.textContent = name;
    if (typeof rows.find((row) => row[name] != null)?.[name] === "number") cell.className = "number";
  }
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const name of names) {
      const value = row[name];
      const cell = line.insertCell();
      cell.append(value instanceof Element ? value : textOf(value));
      if (typeof value === "number") cell.className = "number";
    }
  }
  return table;
}

// A value as people read it: a time without zeros at its end, a number without the last bits of a float.
function textOf(value) {
  if (value == null) return "";
  if (typeof value === "number") return String(Number.isInteger(value) ? value : Number(value.toPrecision(12)));
  if (typeof value === "object") return JSON.stringify(value);
  return String(value).replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:(\.\d*[1-9])0*|\.0+)?(?=Z|[+-]|$)/, "$1 $2$3");
}
