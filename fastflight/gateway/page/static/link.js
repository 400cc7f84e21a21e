// The view of the charts in the address: `from` and `to`, or the `span` of live data, in ms, and the `charts`.
// Charts stand between ";" and their columns between ","; a column of another device is `device:column`, and `@` precedes
// the column of the other axis.

export function written({ fixed, span }, layout, device) {
  const parts = [];
  if (fixed) parts.push(`from=${Math.round(fixed.from)}`, `to=${Math.round(fixed.to)}`);
  else if (span !== null) parts.push(`span=${Math.round(span)}`);
  const name = (each) => [...(each.device === device ? [] : [each.device]), each.column].map(encodeURIComponent).join(":");
  const chart = ({ series, against }) => series.map(name).join(",") + (against ? `@${name(against)}` : "");
  if (layout) parts.push(`charts=${layout.map(chart).join(";")}`);
  return parts.join("&");
}

// The same from an address: {fixed, span, layout}. What is no view is left out.
export function read(text, device) {
  const found = new Map(text.split("&").map((part) => part.split("=", 2)));
  const number = (key) => (found.has(key) && Number.isFinite(Number(found.get(key))) ? Number(found.get(key)) : null);
  const [from, to, span] = ["from", "to", "span"].map(number);
  const named = (part) => {
    const names = part.split(":").map(decoded);
    return { device: names.length > 1 ? names[0] : device, column: names.at(-1) };
  };
  const chart = (part) => {
    const [series, against] = part.split("@");
    return { series: series.split(",").map(named), ...(against && { against: named(against) }) };
  };
  return {
    fixed: from !== null && to > from ? { from, to } : null,
    span: span > 0 ? span : null,
    layout: found.get("charts") ? found.get("charts").split(";").map(chart) : null,
  };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
