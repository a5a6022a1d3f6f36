// A line chart that tells the values of the point under the pointer or in focus.
//
// spec = { caption, x: { label, log, ends: [low, high], ticks: [{ at, text, more }] }, y: { label, ends, text(value) },
//          lines: [{ name, look: { colour, marker, dash }, points: [{ x, y, band, hollow, facts }] }], level: { at, name } }

const PLOT = { left: 56, right: 14, top: 12, bottom: 58, height: 340 };
const SIDES = { "^": [3, -90], v: [3, 90], "<": [3, 180], ">": [3, 0], s: [4, 45], D: [4, 0], p: [5, -90], h: [6, 0], X: [4, 45], "*": [5, -90] };

function markerPath(marker, x, y, size) {
  if (!SIDES[marker]) return `M${x - size},${y}a${size},${size} 0 1,0 ${2 * size},0a${size},${size} 0 1,0 ${-2 * size},0Z`;
  const [sides, turn] = SIDES[marker], radius = size * (sides === 3 ? 1.35 : 1.2);
  const corners = Array.from({ length: sides }, (_, k) => {
    const angle = ((turn + (360 / sides) * k) * Math.PI) / 180;
    return `${(x + radius * Math.cos(angle)).toFixed(2)},${(y + radius * Math.sin(angle)).toFixed(2)}`;
  });
  return `M${corners.join("L")}Z`;
}

// Round numbers that cover a range, about as many as asked for.
function niceTicks(low, high, count) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

function lineChart(spec) {
  const tip = html("div", { class: "tip", hidden: true });
  const box = html("div", {});
  const figure = html("figure", {}, html("figcaption", {}, spec.caption), box, legend(spec), tip);
  let width = 0;
  const draw = (wanted) => {
    if (Math.abs(wanted - width) < 2) return;
    width = wanted;
    tip.hidden = true;
    box.replaceChildren(drawing(spec, Math.max(280, width), figure, tip));
  };
  draw(560);
  new ResizeObserver((entries) => draw(entries[0].contentRect.width)).observe(box);
  return figure;
}

function drawing(spec, width, figure, tip) {
  const at = places(spec, width);
  const root = svg("svg", { viewBox: `0 0 ${width} ${PLOT.height}`, role: "group", "aria-label": spec.caption });
  root.append(...axes(spec, at, width));
  if (spec.level) {
    root.append(svg("line", { class: "level", x1: PLOT.left, x2: width - PLOT.right, y1: at.y(spec.level.at), y2: at.y(spec.level.at) }));
  }
  for (const line of spec.lines) root.append(...band(line, at, spec.y.ends[0]), path(line, at));
  const show = (point, line, group) => showTip(tip, figure, group, line, point);
  for (const line of spec.lines) root.append(pointsOf(line, at, spec, show, () => { tip.hidden = true; }));
  root.querySelector(".point")?.setAttribute("tabindex", "0");
  root.addEventListener("keydown", alongLines);
  return root;
}

function places(spec, width) {
  const to = spec.x.log ? Math.log : (v) => v;
  const [low, high] = spec.x.ends.map(to), [bottom, top] = spec.y.ends;
  const span = width - PLOT.left - PLOT.right, height = PLOT.height - PLOT.top - PLOT.bottom;
  return {
    x: (v) => PLOT.left + (high > low ? (to(v) - low) / (high - low) : 0.5) * span,
    y: (v) => PLOT.top + (1 - (v - bottom) / (top - bottom)) * height,
  };
}

function axes(spec, at, width) {
  const floor = PLOT.height - PLOT.bottom, parts = [];
  for (const tick of niceTicks(...spec.y.ends, 5)) {
    parts.push(svg("line", { class: "grid", x1: PLOT.left, x2: width - PLOT.right, y1: at.y(tick), y2: at.y(tick) }),
      svg("text", { x: PLOT.left - 7, y: at.y(tick) + 4, "text-anchor": "end" }, spec.y.text(tick)));
  }
  let last = -Infinity;
  for (const tick of spec.x.ticks) {
    const x = at.x(tick.at);
    parts.push(svg("line", { class: "axis", x1: x, x2: x, y1: floor, y2: floor + 5 }));
    if (x - last < (tick.more ? 40 : 34)) continue;
    last = x;
    parts.push(svg("text", { x, y: floor + 18, "text-anchor": "middle" }, tick.text));
    if (tick.more) parts.push(svg("text", { x, y: floor + 32, "text-anchor": "middle" }, tick.more));
  }
  const middle = (PLOT.left + width - PLOT.right) / 2, half = PLOT.top + (floor - PLOT.top) / 2;
  parts.push(svg("line", { class: "axis", x1: PLOT.left, x2: width - PLOT.right, y1: floor, y2: floor }),
    svg("text", { x: middle, y: PLOT.height - 8, "text-anchor": "middle" }, spec.x.label),
    svg("text", { x: 13, y: half, "text-anchor": "middle", transform: `rotate(-90 13 ${half})` }, spec.y.label));
  return parts;
}

// The area between the ends of the points' intervals, down to the bottom of the plot.
function band(line, at, bottom) {
  if (!line.points.length || !line.points.every((point) => point.band)) return [];
  const edge = (side) => line.points.map((point) => `${at.x(point.x).toFixed(2)},${at.y(Math.max(bottom, point.band[side])).toFixed(2)}`);
  return [svg("path", { d: `M${[...edge(0), ...edge(1).reverse()].join("L")}Z`, fill: line.look.colour, "fill-opacity": 0.13 })];
}

function path(line, at) {
  const drawn = line.points.map((p) => `${at.x(p.x).toFixed(2)},${at.y(p.y).toFixed(2)}`).join("L");
  return svg("path", { d: `M${drawn}`, fill: "none", stroke: line.look.colour, "stroke-width": 1.8, "stroke-dasharray": line.look.dash });
}

function pointsOf(line, at, spec, show, hide) {
  return svg("g", { class: "line" }, line.points.map((point) => {
    const x = at.x(point.x), y = at.y(point.y), shape = markerPath(line.look.marker, x, y, 4.4);
    const told = point.facts.map(([name, value]) => `${name} ${value}`).join(", ");
    const group = svg("g", { class: "point", tabindex: "-1", role: "img", "aria-label": `${line.name}: ${told}` },
      svg("path", { class: "ring", d: markerPath("o", x, y, 8) }),
      svg("path", { class: point.hollow ? "hollow" : "", d: shape, stroke: line.look.colour, "stroke-width": 1.6,
        fill: point.hollow ? null : line.look.colour }),
      svg("circle", { class: "hit", cx: x, cy: y, r: 9 }));
    for (const event of ["pointerenter", "focus", "click"]) group.addEventListener(event, () => show(point, line, group));
    for (const event of ["pointerleave", "blur"]) group.addEventListener(event, hide);
    return group;
  }));
}

function showTip(tip, figure, group, line, point) {
  tip.replaceChildren(html("h4", {}, line.name), facts(point.facts));
  tip.hidden = false;
  const frame = figure.getBoundingClientRect(), spot = group.querySelector(".hit").getBoundingClientRect();
  const left = spot.left - frame.left + spot.width + 4, top = spot.top - frame.top - tip.offsetHeight - 4;
  tip.style.left = `${Math.max(0, Math.min(left, frame.width - tip.offsetWidth))}px`;
  tip.style.top = `${top < 0 ? spot.bottom - frame.top + 6 : top}px`;
}

// Left and right go along a line, up and down to the next line.
function alongLines(event) {
  const point = event.target.closest(".point"), line = point?.parentElement;
  if (!point) return;
  const place = [...line.children].indexOf(point);
  const next = {
    ArrowRight: () => point.nextElementSibling,
    ArrowLeft: () => point.previousElementSibling,
    ArrowDown: () => line.nextElementSibling?.children[place],
    ArrowUp: () => (line.previousElementSibling?.matches(".line") ? line.previousElementSibling.children[place] : null),
  }[event.key];
  if (!next) return;
  event.preventDefault();
  moveFocus(point, next());
}

function legend(spec) {
  const swatch = (look) => svg("svg", { viewBox: "0 0 40 14", "aria-hidden": "true" },
    svg("path", { d: "M1,7H39", stroke: look.colour, "stroke-width": 1.8, "stroke-dasharray": look.dash }),
    svg("path", { d: markerPath(look.marker, 20, 7, 4.4), fill: look.colour, stroke: look.colour }));
  const entries = spec.lines.map((line) => html("li", {}, swatch(line.look), line.name));
  if (spec.level) {
    entries.push(html("li", {}, svg("svg", { viewBox: "0 0 40 14", "aria-hidden": "true" },
      svg("line", { class: "level", x1: 1, x2: 39, y1: 7, y2: 7 })), spec.level.name));
  }
  return html("ul", { class: "legend" }, entries, (spec.notes ?? []).map((note) => html("li", { class: "faint" }, note)));
}
