// The page: an overview, and a section for each study.

const MARKS = { "": "", raw: "*", holm: "**" };

function toldTable(table) {
  const align = (place) => ({ l: "l", c: "c", r: "" })[table.align[place]] || null;
  const body = (cell, place) => (place === 0
    ? html("th", { scope: "row", class: align(place) }, cell.text)
    : html("td", { class: [align(place), cell.mark].filter(Boolean).join(" ") || null }, cell.text,
      html("span", { class: "mark" }, MARKS[cell.mark])));
  return html("div", { class: "scroll" }, html("table", { class: "told" },
    html("thead", {}, html("tr", {}, table.header.map((text, place) => html("th", { scope: "col", class: align(place) }, text)))),
    html("tbody", {}, table.rows.map((row) => html("tr", {}, row.map(body))))));
}

function told(parts) {
  return parts.map((part) => (part.table ? toldTable(part.table) : html("p", {}, part.text)));
}

// Nested settings as rows with dotted names.
function rows(value, name = "") {
  const nested = value !== null && typeof value === "object" && !Array.isArray(value);
  if (nested) return Object.entries(value).flatMap(([key, item]) => rows(item, name ? `${name}.${key}` : key));
  return [[name, typeof value === "string" ? value : JSON.stringify(value)]];
}

function factTable(pairs) {
  return html("div", { class: "scroll" }, html("table", { class: "facts" }, html("tbody", {},
    pairs.map(([name, value]) => html("tr", {}, html("th", { scope: "row" }, name), html("td", {}, value))))));
}

function provenance(study) {
  const { settings, runs } = study.provenance;
  const commands = [...new Set(runs.map((run) => run.command).filter(Boolean))];
  const known = [
    ["Study folder", study.path],
    ["Made by", `headprune ${study.kind}`],
    ...commands.map((command) => ["Command", command]),
    settings.logs ? null : ["Checkpoint (SHA-256)", settings.checkpoint ?? "one an epoch, see the folder"],
    ["Data", settings.data.split],
    study.resamples ? ["Metric", study.signature ?? "no cell is done yet"] : null,
    study.resamples ? ["Paired bootstrap", `${study.resamples} resamples, seed ${study.seed}, alpha ${study.alpha}`] : null,
  ].filter(Boolean);
  return html("section", {}, html("h3", {}, "Provenance"), factTable(known),
    html("details", {}, html("summary", {}, "All settings"), factTable(rows(settings))),
    runs.map((run, place) => html("details", {}, html("summary", {}, runs.length > 1 ? `Environment ${place + 1}` : "Environment"),
      factTable(rows(run)))));
}

function state(study) {
  if (study.planned === null) return `${study.done} epochs` + (study.missing.length ? ", see below" : "");
  return study.done === study.planned ? "finished" : `${study.done} of ${study.planned} cells`;
}

function studySection(study, place, looks) {
  const charts = study.charts.flatMap((chart) => chartsOf(chart, study, looks));
  return html("section", { id: `study-${place + 1}` }, html("h2", {}, `${study.name}: ${study.heading}`),
    study.unpruned === null ? null : html("p", {}, `Unpruned: ${fixed(study.unpruned)} ${study.measure}; ${state(study)}.`),
    study.missing.map((text) => html("p", { class: "lacking" }, `Missing: ${text}`)),
    study.found.map((text) => html("p", {}, text)),
    charts.length ? html("section", {}, html("h3", {}, "Curves"), html("div", { class: "charts" }, charts)) : null,
    study.maps.map((map) => headMap(map, study, looks.palettes)),
    (study.pictures ?? []).map((picture) => html("figure", { class: "picture" }, html("div", { class: "scroll" },
      html("img", { src: `data:image/svg+xml;base64,${picture.svg}`, alt: picture.caption })))),
    study.parts.length ? html("section", {}, html("h3", {}, study.resamples ? "Significance" : "Tables"), told(study.parts)) : null,
    provenance(study));
}

function overview(content) {
  const several = content.studies.some((study) => study.differs.length);
  const titles = ["Study", "What", "Unpruned", "State", ...(several ? ["Differs from others of its kind in"] : [])];
  const align = (at) => (at === 2 ? null : "l");
  // A narrow page has no header, but each cell's title before it.
  const cell = (text, at) => html("td", { class: align(at + 1), "data-title": titles[at + 1] }, text);
  const line = (study, place) => html("tr", {},
    html("th", { scope: "row", class: "l" }, html("a", { href: `#study-${place + 1}` }, study.name)),
    [study.heading, study.unpruned === null ? "-" : `${fixed(study.unpruned)} ${study.measure}`, state(study),
      ...(several ? [study.differs.join("; ") || "-"] : [])].map(cell));
  const made = content.made_with, commit = made.git ? `, commit ${made.git.commit.slice(0, 12)}${made.git.dirty ? " (changed)" : ""}` : "";
  return [html("h1", {}, content.title),
    html("p", { class: "faint" }, `Made by headprune ${made.headprune}${commit}, sacrebleu ${made.sacrebleu}.`),
    html("div", { class: "scroll" }, html("table", { class: "told overview" },
      html("thead", {}, html("tr", {}, titles.map((text, at) => html("th", { scope: "col", class: align(at) }, text)))),
      html("tbody", {}, content.studies.map(line))))];
}

function start() {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const content = read("document"), looks = read("looks");
  document.getElementById("top").append(...overview(content));
  const main = document.getElementById("studies");
  if (content.together.length) {
    main.append(html("section", { id: "together" }, html("h2", {}, "Studies together"),
      html("div", { class: "charts" }, content.together.flatMap((chart) => chartsOf(chart, chart, looks)))));
  }
  main.append(...content.studies.map((study, place) => studySection(study, place, looks)));
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((node) => { node.open = true; }));
}

start();
