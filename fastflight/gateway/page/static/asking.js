// Requests to the gateway. A refusal is raised as an `Error` with the gateway's text: what, where, and what to do next.

const TOKEN = "fastflight-token";

// The token stays in this tab, and is sent only in a header.
export const keep = (token) => sessionStorage.setItem(TOKEN, token);
export const forget = () => sessionStorage.removeItem(TOKEN);
export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

// The header that authenticates the user; none without a token.
export function proof() {
  const token = sessionStorage.getItem(TOKEN);
  // A header cannot hold other characters. A token never has them, so the server refuses it then.
  return token === null ? {} : { Authorization: `Bearer ${token.replace(/[^!-~]/g, "?")}` };
}

export async function ask(url, options = {}) {
  let answer;
  try {
    answer = await fetch(url, { ...options, headers: { ...options.headers, ...proof() } });
  } catch {
    throw new Error("the server does not answer; is it still running?");
  }
  if (!answer.ok) throw refusal(answer.status, await answer.text());
  return answer;
}

export function refusal(status, body) {
  let [text, code] = [`the server answered ${status}`, ""];
  try {
    const error = JSON.parse(body);
    [text, code] = [said(error), error.code];
  } catch {
    // the answer is not from the gateway
  }
  return Object.assign(new Error(text), { status, code });
}

// An address with the content of `url`, for an image or a download: a browser sends no header for these.
export async function fetched(url) {
  return hasToken() ? URL.createObjectURL(await (await ask(url)).blob()) : url;
}

export function said(error) {
  if (!error.what) throw new Error("not an error of the gateway");
  if (error.code === "busy" && error.holder && error.what.startsWith("in use by ")) {
    const device = error.where || "the device";
    return `${device} is in use by ${error.holder}. Wait until it is done, or end it there: a REPL in another tab by its Close button.`;
  }
  const place = error.where ? `${error.where}: ` : "";
  return `${place}${error.what}${error.hint ? `. ${error.hint}` : ""}`;
}

// The address of a file or folder; `path` begins with a slash.
export function fileUrl(device, path) {
  const parts = path.split("/").slice(1).map(encodeURIComponent);
  return `/devices/${encodeURIComponent(device)}/files/${parts.join("/")}`;
}
