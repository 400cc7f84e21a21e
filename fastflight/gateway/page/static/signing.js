// Signing in. If the server has tokens, the user types one. It is kept for this tab only, and sent as a header.

import { ask, forget, hasToken, keep } from "./asking.js";

const get = (id) => document.getElementById(id);

export class Signing {
  // `began(identity)` is called with the `name` and `scopes` of the user, and with whether they may see a `cluster`.
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
      get("who").textContent = hasToken() ? identity.name : "";
      get("who").title = identity.scopes.join(" ");
      get("sign-out").hidden = !hasToken();
      this.began(identity);
    } catch (error) {
      if (error.status === 401) this.want(hasToken() ? "This token is not valid here, or no longer." : "");
      else setTimeout(() => this.begin(), 2000); // the server does not answer yet
      if (error.status !== 401) get("connection").textContent = error.message;
    }
  }

  // Forget the token and all that it has shown: the page is loaded again. `why` is shown then.
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
    get("connection").textContent = "not signed in";
    get("sign-in-said").textContent = why || before || "";
    get("token").focus();
  }
}
