// Elements and numbers. Text of the document enters the page through text nodes only, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

const fixed = (value, digits = 2) => value.toFixed(digits);
const signed = (value, digits = 2) => (value < 0 ? "" : "+") + value.toFixed(digits);
const percent = (share) => `${(100 * share).toFixed(1)}%`;
const interval = (ci) => `${fixed(ci[0])} to ${fixed(ci[1])}`;

// The smallest p that this number of resamples can show is only a bound (results of older versions have 0 there).
function pText(p, resamples, own = p, comparisons = 1) {
  if (p === null || p === undefined) return "not known before all cells are done";
  if (own > (2 / (resamples + 1)) * 1.000001) return p < 0.001 ? p.toPrecision(2) : p.toFixed(3);
  return `< ${Number(Math.min(1, (2 / resamples) * comparisons).toPrecision(2))}`;
}

// A description list of [name, value] pairs; a value is text or an element.
function facts(pairs) {
  return html("dl", {}, pairs.filter(Boolean).map(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));
}

// Moves the focus in a group of elements that has one stop for the tab key.
function moveFocus(from, to) {
  if (!to) return;
  from.setAttribute("tabindex", "-1");
  to.setAttribute("tabindex", "0");
  to.focus();
}
