// Heat maps of heads: layers down, heads across, and a panel that tells what is known of the head under the pointer.

// Heads a layer, above which maps stand below one another, and above which cells are drawn smaller.
const SIDE_BY_SIDE = 5, LARGE = 8;

function colourAt(palette, share) {
  return palette[Math.round(Math.min(1, Math.max(0, share)) * (palette.length - 1))];
}

// Black or white, whichever can be read on this colour (relative luminance as WCAG has it).
function inkOn(colour) {
  const [r, g, b] = [1, 3, 5]
    .map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

function scaleOf(map, palettes) {
  const name = map.scale === "delta" ? "delta" : "importance";
  const values = map.components.flatMap((part) => part.layers.flat()).map((cell) => cell[name]).filter((v) => v !== undefined);
  const reach = Math.max(...values.map(Math.abs), 0) || 1;
  // From the lowest to the highest: from 0 on, scores of about one size would all look alike.
  const ends = name === "delta" || !values.length ? [-reach, reach] : [Math.min(...values), Math.max(...values)];
  if (ends[1] === ends[0]) ends[1] += 1;
  return { name, ends, palette: palettes[name], colour: (v) => colourAt(palettes[name], (v - ends[0]) / (ends[1] - ends[0])) };
}

function headMap(map, study, palettes) {
  const scale = scaleOf(map, palettes);
  const panel = html("div", { class: "panel empty", role: "status", "aria-live": "polite" }, html("p", { class: "faint" },
    "Point at a head, or move there with the tab and arrow keys, to see its numbers."));
  let shown = null;
  const show = (button, part, cell) => {
    if (shown) shown.setAttribute("aria-pressed", "false");
    shown = button;
    button.setAttribute("aria-pressed", "true");
    panel.classList.remove("empty");
    panel.replaceChildren(...panelOf(map, study, part, cell));
  };
  const widest = Math.max(...map.components.flatMap((part) => part.layers.map((layer) => layer.length)));
  const tables = map.components.map((part, place) => mapTable(part, scale, show, place === 0));
  return html("section", {}, html("h3", {}, map.caption),
    html("p", { class: "faint" }, "Layers down, heads across, both by their original numbers, from 0 as in mask files."),
    html("div", { class: "heads" }, html("div", { class: widest > SIDE_BY_SIDE ? "maps stacked" : "maps" }, tables), panel), key(map, scale, study));
}

function mapTable(part, scale, show, first) {
  const width = Math.max(...part.layers.map((layer) => layer.length));
  const table = html("table", { class: width > LARGE ? "map many" : "map", "aria-label": `heads of ${part.name}` },
    html("caption", {}, `${part.name} (${part.component})`),
    html("thead", {}, html("tr", {}, html("th", {}, ""),
      Array.from({ length: width }, (_, head) => html("th", { scope: "col" }, String(head))))),
    html("tbody", {}, part.layers.map((layer, number) => html("tr", {}, html("th", { scope: "row" }, String(number)),
      layer.map((cell) => html("td", {}, cellButton(part, cell, scale, show)))))));
  if (first) table.querySelector("button")?.setAttribute("tabindex", "0");
  table.addEventListener("keydown", arrows);
  return table;
}

function cellButton(part, cell, scale, show) {
  const value = cell[scale.name];
  const text = value === undefined ? "" : scale.name === "delta" ? signed(value) : fixed(value);
  const state = cell.state === "pruned" ? "gone" : cell.state === "missing" ? "open" : cell.mark || "";
  const label = `${part.component} layer ${cell.layer} head ${cell.head}: ${cell.state || text}`;
  const button = html("button", { type: "button", class: state, tabindex: "-1", "aria-label": label, "aria-pressed": "false",
    "data-component": part.component, "data-layer": cell.layer, "data-head": cell.head }, text);
  if (value !== undefined) {
    button.style.backgroundColor = scale.colour(value);
    button.style.color = inkOn(scale.colour(value));
  }
  for (const event of ["pointerenter", "focus", "click"]) button.addEventListener(event, () => show(button, part, cell));
  return button;
}

// The arrow keys move among the heads, from one component to the next as well.
function arrows(event) {
  const at = event.target.closest("td"), row = at?.parentElement, column = at?.cellIndex;
  if (!at) return;
  const table = row.closest("table");
  const next = {
    ArrowRight: () => at.nextElementSibling ?? table.nextElementSibling?.querySelectorAll("tbody tr")[row.rowIndex - 1]?.cells[1],
    ArrowLeft: () => (column > 1 ? at.previousElementSibling
      : [...(table.previousElementSibling?.querySelectorAll("tbody tr")[row.rowIndex - 1]?.cells ?? [])].at(-1)),
    ArrowDown: () => row.nextElementSibling?.cells[column],
    ArrowUp: () => row.previousElementSibling?.cells[column],
  }[event.key];
  if (!next) return;
  event.preventDefault();
  moveFocus(event.target, next()?.querySelector("button"));
}

function panelOf(map, study, part, cell) {
  const title = html("h4", {}, `${part.name} (${part.component}), layer ${cell.layer}, head ${cell.head}`);
  if (cell.state) {
    return [title, html("p", {}, cell.state === "pruned" ? "Pruned from the start." : "This cell is not done yet.")];
  }
  if (cell.importance !== undefined) return [title, facts([
    [map.label || "Importance", String(Number(cell.importance.toPrecision(6)))],
    cell.sd === undefined ? null : ["Standard deviation", fixed(cell.sd)],
  ])];
  return [title, facts(numbers(cell, study, study.comparisons)), ...reported(cell, study), ...examples(map, cell)];
}

function numbers(cell, study, comparisons) {
  return [
    ["Difference", `${signed(cell.delta)} ${study.measure}`],
    ["Score", `${fixed(cell.score)} ${study.measure}`],
    ["p", pText(cell.p, study.resamples)],
    ["p (Holm)", pText(cell.p_holm, study.resamples, cell.p, comparisons)],
    cell.ci ? ["95% interval of the score", interval(cell.ci)] : null,
  ];
}

function reported(cell, study) {
  if (!cell.reported) return [];
  return [html("h5", {}, `Best of its layer; on ${cell.reported.split}`),
    facts(numbers(cell.reported, study, study.comparisons_reported ?? study.comparisons))];
}

function examples(map, cell) {
  if (!cell.examples || !map.measure) return [html("p", { class: "faint" }, "No example sentences.")];
  if (!cell.examples.length) return [html("p", { class: "faint" }, "No translation changes.")];
  return cell.examples.map((example) => {
    const texts = map.sentences[example.sentence];
    const chrf = texts.reference === null ? `change ${fixed(example.change, 1)}`
      : `chrF2 ${fixed(example.chrf[0], 1)} unpruned, ${fixed(example.chrf[1], 1)} now`;
    return html("div", { class: "example" }, html("h5", {}, `Sentence ${example.sentence}: ${chrf}`), facts([
      texts.source === null ? null : ["Source", texts.source],
      texts.reference === null ? null : ["Reference", texts.reference],
      ["Unpruned", markedWords(texts.unpruned, example.translation)],
      [map.masked, markedWords(example.translation, texts.unpruned)],
    ]));
  });
}

function key(map, scale, study) {
  const bar = html("span", { class: "bar" });
  bar.style.background = `linear-gradient(to right, ${scale.palette.join(", ")})`;
  const cells = map.components.flatMap((part) => part.layers.flat());
  const delta = scale.name === "delta";
  const ends = scale.ends.map((end) => (delta ? signed(end) : fixed(end)));
  const box = (name, text) => html("span", {}, html("span", { class: `box ${name}` }), text);
  return [
    html("div", { class: "key" },
      html("span", {}, ends[0], bar, ends[1], delta ? ` ${study.measure} (the middle: as unpruned)` : ` ${map.label}`),
      delta ? box("holm", `p < ${study.alpha} after Holm's correction`) : null,
      delta ? box("raw", `p < ${study.alpha} only before it`) : null,
      cells.some((cell) => cell.state === "pruned") ? box("gone", "pruned from the start") : null),
    map.measure ? html("p", { class: "faint" }, "Example sentences are those that change most. Change: ",
      map.measure.text, ` (${map.measure.signature}). Sentences count from 1.`) : null,
  ].filter(Boolean);
}
