// The charts of pruning studies, as the papers draw them.

// A component keeps its look; with other names in play each line takes the next one.
function lookOf(names, place, looks) {
  const own = names.map((name) => looks.named[name]);
  const all = [...Object.values(looks.named), ...looks.spare];
  return own.every(Boolean) ? own[place] : all[place % all.length];
}

function pruningChart(chart, study, looks) {
  const names = chart.curves.map((curve) => curve.name);
  const scores = chart.curves.flatMap((curve) => curve.points.flatMap((point) => [point.score, point.ci?.[1] ?? 0]));
  return {
    caption: chart.caption,
    x: { label: "heads pruned", ends: [0, 100], ticks: [0, 20, 40, 60, 80, 100].map((at) => ({ at, text: `${at}%` })) },
    y: { label: study.measure, ends: [Math.min(0, ...scores), 1.05 * Math.max(...scores, chart.baseline) || 1], text: (v) => String(v) },
    level: { at: chart.baseline, name: `unpruned (${fixed(chart.baseline)})` },
    lines: chart.curves.map((curve, place) => ({
      name: curve.name,
      look: lookOf(names, place, looks),
      points: curve.points.map((point) => ({
        x: point.percent, y: point.score, band: point.ci, hollow: point.p < study.alpha,
        facts: pointFacts(point, study, curve.comparisons ?? study.comparisons),
      })),
    })),
    notes: [`hollow: p < ${study.alpha} (before Holm's correction)`,
      chart.curves.some((curve) => curve.points.some((point) => point.sd !== undefined))
        ? "bands: 95% interval, of means one standard deviation" : "bands: 95% interval"],
  };
}

function pointFacts(point, study, comparisons) {
  return [
    ["Pruned", `${fixed(point.percent, 0)}% (${point.pruned} heads)`],
    [point.sd === undefined ? study.measure : `${study.measure}, mean of ${point.seeds.length}`, fixed(point.score)],
    point.sd === undefined ? null : ["Standard deviation", fixed(point.sd)],
    point.relative === undefined || point.relative === null ? null : ["of unpruned", percent(point.relative)],
    ...(point.sd === undefined ? [
      point.ci ? ["95% interval", interval(point.ci)] : null,
      ["p", pText(point.p, study.resamples)],
      ["p (Holm)", pText(point.p_holm, study.resamples, comparisons)],
    ] : []),
  ].filter(Boolean);
}

// By epoch: a line for each share of pruned heads; everything pruned is left out, as in the paper.
function epochChart(chart, study, looks) {
  const field = chart.kind === "epochs-relative" ? "relative" : "score";
  const epochs = chart.epochs.filter((row) => row.points[0][field] !== null);
  const percents = (epochs[0]?.points ?? []).map((point) => point.percent).filter((value) => value < 100);
  const all = epochs.flatMap((row) => row.points.map((point) => point[field]));
  const markers = ["o", "s", "^", "D", "v", "p", "<", "h", ">"];
  return {
    caption: chart.caption,
    x: {
      label: `epoch [its unpruned ${study.measure}]`, log: true, ends: [epochs[0]?.epoch ?? 1, epochs.at(-1)?.epoch ?? 1],
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
    notes: [`hollow: p < ${study.alpha} (before Holm's correction)`],
  };
}

// By share of pruned heads: the first two and the last two epochs.
function shareChart(chart, study, looks) {
  const usable = chart.epochs.filter((row) => row.points[0].relative !== null);
  const epochs = usable.filter((_, place) => place < 2 || place >= usable.length - 2);
  const names = epochs.map((row) => `Epoch ${row.epoch}`);
  return {
    caption: chart.caption,
    x: { label: "heads pruned", ends: [0, 100], ticks: [0, 20, 40, 60, 80, 100].map((at) => ({ at, text: `${at}%` })) },
    y: yAxis("relative", epochs.flatMap((row) => row.points.map((point) => point.relative)), study.measure),
    lines: epochs.map((row, place) => ({
      name: names[place], look: lookOf(names, place, looks),
      points: row.points.map((point) => ({ x: point.percent, y: point.relative, hollow: point.p < study.alpha,
        facts: [["Epoch", String(row.epoch)], ...pointFacts(point, study, study.comparisons)] })),
    })),
    notes: [`hollow: p < ${study.alpha} (before Holm's correction)`],
  };
}

function yAxis(field, values, measure) {
  const ends = [Math.min(0, ...values), 1.05 * Math.max(0, ...values) || 1];
  return field === "relative" ? { label: `share of unpruned ${measure}`, ends, text: (v) => `${Number((100 * v).toPrecision(6))}%` }
    : { label: measure, ends, text: (v) => String(v) };
}

function chartOf(chart, study, looks) {
  const make = { pruning: pruningChart, "epochs-relative": epochChart, "epochs-score": epochChart, "epochs-share": shareChart }[chart.kind];
  const spec = make(chart, study, looks);
  return spec.lines.some((line) => line.points.length) ? lineChart(spec)
    : html("p", { class: "faint" }, `${chart.caption}: the unpruned ${study.measure} is 0, there is nothing to draw.`);
}
