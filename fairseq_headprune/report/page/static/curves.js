// The charts of pruning studies, as the papers draw them.

// A name has one look on the whole page: a component its own, any other name the next one that is spare.
function lookOf(name, looks) {
  if (!looks.named[name]) {
    looks.used = looks.used ?? 0;
    looks.named[name] = looks.spare[looks.used % looks.spare.length];
    looks.used += 1;
  }
  return looks.named[name];
}

const hollow = (study) => `hollow: p < ${study.alpha} (before Holm's correction)`;

function pruningChart(chart, study, looks) {
  const scores = chart.curves.flatMap((curve) => curve.points.flatMap((point) => [point.score, point.ci?.[1] ?? 0]));
  return {
    caption: chart.caption,
    x: { label: "heads pruned", ends: [0, 100], ticks: [0, 20, 40, 60, 80, 100].map((at) => ({ at, text: `${at}%` })) },
    y: { label: study.measure, ends: [Math.min(0, ...scores), 1.05 * Math.max(...scores, chart.baseline) || 1], text: (v) => String(v) },
    level: { at: chart.baseline, name: `unpruned (${fixed(chart.baseline)})` },
    lines: chart.curves.map((curve) => ({
      name: curve.name,
      look: lookOf(curve.name, looks),
      points: curve.points.map((point) => ({
        x: point.percent, y: point.score, band: point.ci, hollow: point.p < study.alpha,
        facts: pointFacts(point, study, curve.comparisons ?? study.comparisons),
      })),
    })),
    notes: [hollow(study), chart.curves.some((curve) => curve.points.some((point) => point.sd !== undefined))
      ? "bands: 95% interval; of a mean, that of the mean (Student's t)" : "bands: 95% interval of the score (bootstrap)"],
  };
}

function pointFacts(point, study, comparisons) {
  return [
    ["Pruned", `${fixed(point.percent, 0)}% (${point.pruned} heads)`],
    [point.sd === undefined ? study.measure : `${study.measure}, mean of ${point.seeds.length}`, fixed(point.score)],
    point.sd === undefined || point.sd === null ? null : ["Standard deviation", fixed(point.sd)],
    point.relative === undefined || point.relative === null ? null : ["of unpruned", percent(point.relative)],
    ...(point.sd === undefined ? [
      point.ci ? ["95% interval", interval(point.ci)] : null,
      // The unpruned model, where a curve begins, is not tested.
      ...(point.pruned === 0 ? [] : [
        ["p", pText(point.p, study.resamples)],
        ["p (Holm)", pText(point.p_holm, study.resamples, point.p, comparisons)],
      ]),
    ] : []),
  ].filter(Boolean);
}

// By epoch: a line for each share of pruned heads; everything pruned is left out, as in the paper.
function epochChart(chart, study, looks, field) {
  const epochs = chart.epochs.filter((row) => row.points[0][field] !== null);
  const percents = (epochs[0]?.points ?? []).map((point) => point.percent).filter((value) => value < 100);
  const all = epochs.flatMap((row) => row.points.map((point) => point[field]));
  const markers = ["o", "s", "^", "D", "v", "p", "<", "h", ">"];
  return {
    caption: field === "score" ? `${chart.caption}, by epoch (${chart.title})`
      : `Share of the epoch's unpruned ${chart.caption}, by epoch (${chart.title})`,
    x: {
      label: `epoch, logarithmic [its unpruned ${study.measure}]`, log: true, ends: [epochs[0]?.epoch ?? 1, epochs.at(-1)?.epoch ?? 1],
      ticks: epochs.map((row) => ({ at: row.epoch, text: String(row.epoch), more: `[${fixed(row.unpruned, 1)}]` })),
    },
    y: yAxis(field, all, study.measure),
    lines: percents.map((share, place) => ({
      name: `${share.toFixed(0)}% pruned`,
      look: { colour: colourAt(looks.palettes.epochs, percents.length > 1 ? (0.92 * place) / (percents.length - 1) : 0),
        marker: markers[place % markers.length], dash: null },
      points: epochs.map((row) => ({ x: row.epoch, y: row.points[place][field], hollow: row.points[place].p < study.alpha,
        facts: [["Epoch", String(row.epoch)], ...pointFacts(row.points[place], study, study.comparisons)] })),
    })),
    notes: [hollow(study)],
  };
}

// By share of pruned heads: the epochs of the panel.
function shareChart(chart, study, looks) {
  const epochs = chart.epochs.filter((row) => row.points[0].relative !== null && chart.panel.includes(row.epoch));
  return {
    caption: `Share of the epoch's unpruned ${chart.caption}, by share of heads pruned (${chart.title})`,
    x: { label: "heads pruned", ends: [0, 100], ticks: [0, 20, 40, 60, 80, 100].map((at) => ({ at, text: `${at}%` })) },
    y: yAxis("relative", epochs.flatMap((row) => row.points.map((point) => point.relative)), study.measure),
    lines: epochs.map((row) => ({
      name: `Epoch ${row.epoch}`, look: lookOf(`Epoch ${row.epoch}`, looks),
      points: row.points.map((point) => ({ x: point.percent, y: point.relative, hollow: point.p < study.alpha,
        facts: [["Epoch", String(row.epoch)], ...pointFacts(point, study, study.comparisons)] })),
    })),
    notes: [hollow(study)],
  };
}

function yAxis(field, values, measure) {
  const ends = [Math.min(0, ...values), 1.05 * Math.max(0, ...values) || 1];
  return field === "relative" ? { label: `share of unpruned ${measure}`, ends, text: (v) => `${Number((100 * v).toPrecision(6))}%` }
    : { label: measure, ends, text: (v) => String(v) };
}

function chartsOf(chart, study, looks) {
  const specs = chart.kind === "pruning" ? [pruningChart(chart, study, looks)]
    : [epochChart(chart, study, looks, "relative"), epochChart(chart, study, looks, "score"), shareChart(chart, study, looks)];
  return specs.map((spec) => (spec.lines.some((line) => line.points.length) ? lineChart(spec)
    : html("p", { class: "faint" }, `${spec.caption}: the unpruned ${study.measure} is 0, there is nothing to draw.`)));
}
