// Who looks. Where the server wants to know, a token is typed once, kept for this tab alone, and sent as a header.

import { ask, forget, hasToken, keep } from "./asking.js";

const get = (id) => document.getElementById(id);

export class Signing {
  // `began(identity)` once it is known who looks: `name`, `scopes`.
  constructor(began) {
    this.began = began;
    get("sign-in").addEventListener("submit", (event) => {
      event.preventDefault();
      const token = get("token").value.trim();
      get("token").value = "";
      if (!token) return this.want("Type or paste a token.");
      keep(token);
      this.begin();
    });
    get("sign-out").addEventListener("click", () => this.leave(""));
  }

  async begin() {
    try {
      const answer = await ask("/actions/identity", { method: "POST" });
      const [identity] = (await answer.json()).results;
      get("sign-in").hidden = true;
      get("fleet").hidden = false;
      get("who").textContent = hasToken() ? identity.name : "";
      get("who").title = identity.scopes.join(" ");
      get("sign-out").hidden = !hasToken();
      this.began(identity);
    } catch (error) {
      if (error.status === 401) this.want(hasToken() ? "This token is not known here, or no longer good." : "");
      else setTimeout(() => this.begin(), 2000); // the server is not there yet
      if (error.status !== 401) get("connection").textContent = error.message;
    }
  }

  // Nothing of what was seen stays: a page that is loaded anew has only what the next token shows.
  leave(why) {
    forget();
    if (why) sessionStorage.setItem("fastflight-why", why);
    location.reload();
  }

  want(why) {
    forget();
    const before = sessionStorage.getItem("fastflight-why");
    sessionStorage.removeItem("fastflight-why");
    get("sign-in").hidden = false;
    get("fleet").hidden = true;
    get("hint").hidden = true;
    get("connection").textContent = "not signed in";
    get("sign-in-said").textContent = why || before || "";
    get("token").focus();
  }
}
