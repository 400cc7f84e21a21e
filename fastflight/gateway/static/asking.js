// Asking the gateway. What it refuses is an `Error` whose text is the gateway's: what, where, and what to do next.

export async function ask(url, options = {}) {
  let answer;
  try {
    answer = await fetch(url, options);
  } catch {
    throw new Error("the server does not answer; is it still running?");
  }
  if (!answer.ok) throw refusal(answer.status, await answer.text());
  return answer;
}

export function refusal(status, body) {
  try {
    return new Error(said(JSON.parse(body)));
  } catch {
    return new Error(`the server answered ${status}`);
  }
}

export function said(error) {
  if (!error.what) throw new Error("not an error of the gateway");
  const place = error.where ? `${error.where}: ` : "";
  return `${place}${error.what}${error.hint ? `. ${error.hint}` : ""}`;
}

// A file's or folder's address; `path` begins with a slash.
export function fileUrl(device, path) {
  const parts = path.split("/").slice(1).map(encodeURIComponent);
  return `/devices/${encodeURIComponent(device)}/files/${parts.join("/")}`;
}
