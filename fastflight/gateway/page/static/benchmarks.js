// The plots of benchmark results, on their own page.

import { ask, fetched } from "./asking.js";

export class Benchmarks {
  // Ask which plots there are. The link to this page is shown only if there are some.
  async load() {
    const { plots } = await (await ask("/plots")).json();
    document.getElementById("to-benchmarks").hidden = plots.length === 0;
    document.getElementById("plots").replaceChildren(...plots.map(figureOf));
  }
}

function figureOf(url) {
  const name = decodeURIComponent(url.slice(url.lastIndexOf("/") + 1)).replace(/\.png$/, "").replaceAll("_", " ");
  const figure = document.createElement("figure");
  figure.appendChild(document.createElement("figcaption")).textContent = name;
  const image = figure.appendChild(document.createElement("img"));
  image.loading = "lazy";
  image.alt = name;
  fetched(url).then((address) => (image.src = address), () => figure.remove());
  return figure;
}
