"use strict";
// The drawn charts: sparklines, samples, timelines, pairs, sides. Each is SVG, so it prints and saves as it is.

/** The history of a series in the size of a word. */
function sparkline(series, changes) {
  const values = unpack(series.value);
  if (!values) return null;
  const range = extent(values);
  const label = range
    ? `${series.metric}: ${count(values.length, "value")}, from ${withUnit(range[0], series.unit)} to ${withUnit(range[1], series.unit)}`
    : `${series.metric}: no values`;
  const svg = draw("svg", { viewBox: "0 0 120 28", class: "spark", role: "img", "aria-label": label });
  if (!range) return svg;
  const shown = thinned(values, 120);
  const spread = range[1] - range[0] || Math.abs(range[1]) || 1;
  const floor = Math.min(range[0], range[1] - spread - Math.abs(range[1]) * 0.02);
  const place = {
    x: (i) => 2 + (i / Math.max(1, shown.length - 1)) * 112,
    y: (value) => 25 - ((value - floor) / (range[1] - floor || 1)) * 22,
  };
  for (const change of changes) {
    const at = round(2 + (change.at / Math.max(1, values.length - 1)) * 112);
    svg.append(draw("line", { class: `spark-change ${change.direction}`, x1: at, x2: at, y1: 1, y2: 27 }));
  }
  svg.append(draw("path", { class: "spark-line", d: linePath(shown.map((_, i) => i), shown, place) }));
  const last = shown.length - 1;
  if (isNumber(shown[last])) svg.append(draw("circle", { class: "spark-end", cx: round(place.x(last)), cy: round(place.y(shown[last])), r: 2.2 }));
  return svg;
}

/** How many trials ended how, as one bar. */
function outcomeBar(outcomes) {
  const total = outcomes.reduce((sum, [, number]) => sum + number, 0) || 1;
  const svg = draw("svg", { viewBox: "0 0 400 10", class: "bar", preserveAspectRatio: "none", role: "img",
    "aria-label": outcomes.map(([name, number]) => `${name}: ${number}`).join(", ") });
  // Three trials of a million are to be seen: each outcome has a least width, the rest is shared.
  const least = 4;
  let from = 0;
  for (const [name, number] of outcomes) {
    const width = least + (number / total) * (400 - least * outcomes.length);
    svg.append(draw("rect", { class: `outcome-${outcomeKind(name)}`, x: round(from), y: 0, width: round(width - 1), height: 10 }));
    from += width;
  }
  return svg;
}

function outcomeKind(name) {
  if (name === "passed" || name === "done") return "passed";
  const others = ["skipped", "missing", "interrupted", "waiting", "running", "preempted", "cancelled", "not begun"];
  return others.includes(name) ? "other" : "failed";
}

/** All samples of a trial in their order, with the warm-up apart, and their distribution beside it. */
function sampleChart(detail, unit) {
  const warmup = (unpack(detail.warmup) || []).filter(isNumber);
  const samples = (unpack(detail.samples) || []).filter(isNumber);
  const range = extent(samples.length ? samples : warmup);
  if (!range) return null;
  // A first iteration may take a thousand times the others: what lies above is drawn at the edge.
  const top = Math.min(extent(samples, warmup)[1], range[1] + (range[1] - range[0]) * 2 || range[1] * 1.5);
  const total = warmup.length + samples.length;
  const label = `${count(samples.length, "sample")} after ${warmup.length} of warm-up; median ${withUnit(median(samples), unit)}, `
    + `from ${withUnit(range[0], unit)} to ${withUnit(range[1], unit)}`;
  const wide = roomFor(720);
  const marks = ticks(1, total, wide / 120).filter((value) => Number.isInteger(value));
  const y = valueAxis(range[0], top, unit, { ticks: 5 });
  const { svg, box, place } = frame(wide, 260, label, { low: 0, high: total * 1.25 + 1, ticks: marks.map((value) => [value, String(value)]), title: "iteration" }, y);
  const dots = (values, from, kind) => values.forEach((value, i) => {
    const outside = value > top;
    svg.append(draw(outside ? "path" : "circle", outside
      ? { class: kind, d: triangle(place.x(from + i + 1), box.top + 5) }
      : { class: kind, cx: round(place.x(from + i + 1)), cy: round(place.y(value)), r: total > 200 ? 1.6 : 2.4 }));
  });
  if (warmup.length) {
    const end = round(place.x(warmup.length + 0.5));
    svg.append(draw("rect", { class: "warmup-area", x: box.left, y: box.top, width: round(end - box.left), height: box.bottom - box.top }));
    svg.append(draw("text", { class: "note", x: box.left + 4, y: box.top - 6 }, "warm-up"));
  }
  dots(warmup, 0, "dot warmup");
  dots(samples, warmup.length, "dot");
  histogramBeside(svg, samples, range, box, place, total);
  const middle = median(samples);
  if (isNumber(middle)) {
    const at = round(place.y(middle));
    svg.append(draw("line", { class: "median", x1: round(place.x(warmup.length)), x2: box.right, y1: at, y2: at }));
    svg.append(draw("text", { class: "note halo", x: box.right, y: box.top - 6, "text-anchor": "end" }, `median ${withUnit(middle, unit)}`));
  }
  return svg;
}

function triangle(x, y) {
  return `M${round(x)} ${round(y - 4)}l4 7h-8z`;
}

function histogramBeside(svg, samples, range, box, place, total) {
  if (samples.length < 5) return;
  const bins = Math.min(40, Math.max(8, Math.ceil(Math.sqrt(samples.length) * 1.5)));
  const width = (range[1] - range[0]) / bins || 1;
  const counts = new Array(bins).fill(0);
  for (const value of samples) counts[Math.min(bins - 1, Math.floor((value - range[0]) / width))] += 1;
  const most = Math.max(...counts);
  const from = place.x(total + total * 0.02 + 1);
  counts.forEach((number, i) => {
    if (!number) return;
    const upper = place.y(range[0] + (i + 1) * width);
    const height = Math.max(1, place.y(range[0] + i * width) - upper - 0.6);
    svg.append(draw("rect", { class: "bin", x: round(from), y: round(upper), width: round((number / most) * (box.right - from)), height: round(height) }));
  });
}

/** One quantity over the time of a trial, with the trial's phases behind it. */
function timelineChart(line, phases) {
  const t = unpack(line.t) || [];
  const y = unpack(line.y) || [];
  const range = extent(y);
  const span = extent(t);
  if (!range || !span) return null;
  const end = Math.max(span[1], phases.reduce((sum, phase) => sum + (phase.seconds || 0), 0));
  const label = `${line.name} over ${withUnit(end, "s", 3)}: from ${withUnit(range[0], line.unit)} to ${withUnit(range[1], line.unit)}`;
  const axis = valueAxis(range[0], range[1], line.unit, { zero: true, ticks: 4 });
  const wide = roomFor(460);
  const seconds = ticks(0, end, wide / 70);
  const scale = scaleFor("s", end);
  const labels = tickLabels(seconds, scale.factor);
  const { svg, box, place } = frame(wide, 180, label, { low: 0, high: end || 1, ticks: seconds.map((value, i) => [value, `${labels[i]} ${scale.name}`]) }, axis);
  let from = 0;
  phases.forEach((phase, i) => {
    const x = place.x(from);
    const width = place.x(from + (phase.seconds || 0)) - x;
    from += phase.seconds || 0;
    svg.append(draw("rect", { class: `phase phase-${i % 2}`, x: round(x), y: box.top, width: round(Math.max(0, width)), height: box.bottom - box.top },
      draw("title", {}, `${phase.name}: ${withUnit(phase.seconds, "s", 3)}`)));
    if (width > String(phase.name).length * 6.2 + 6) svg.append(draw("text", { class: "note", x: round(x + 4), y: box.top - 5 }, phase.name));
  });
  const area = linePath(t, y, place);
  svg.append(draw("path", { class: "line", d: area }));
  return svg;
}

/** The pairs of an A/B comparison: each a line from its base to its new value. */
function pairChart(pairs, series) {
  const base = unpack(pairs.base) || [];
  const fresh = unpack(pairs.new) || [];
  const range = extent(base, fresh);
  if (!range) return null;
  const label = `${pairs.title}: ${count(base.length, "pair")}, ratio ${digits(pairs.ratio, 4)} (${digits(pairs.low, 4)} to ${digits(pairs.high, 4)})`;
  const { svg, box, place } = frame(roomFor(420), 260, label,
    { low: 0, high: 1, ticks: [[0.2, "base"], [0.8, "new"]] }, valueAxis(range[0], range[1], series.unit, { title: series.metric }));
  base.forEach((value, i) => {
    if (!isNumber(value) || !isNumber(fresh[i])) return;
    const kind = judged(fresh[i] / value, series.direction);
    svg.append(draw("line", { class: `pair ${kind}`, x1: round(place.x(0.2)), x2: round(place.x(0.8)), y1: round(place.y(value)), y2: round(place.y(fresh[i])) }));
    svg.append(draw("circle", { class: "dot", cx: round(place.x(0.2)), cy: round(place.y(value)), r: 2.6 }));
    svg.append(draw("circle", { class: "dot", cx: round(place.x(0.8)), cy: round(place.y(fresh[i])), r: 2.6 }));
  });
  svg.append(draw("text", { class: "note", x: (box.left + box.right) / 2, y: box.top - 6, "text-anchor": "middle" },
    `${percent(pairs.ratio)} (${percent(pairs.low)} to ${percent(pairs.high)})`));
  return svg;
}

/** "worse", "better" or "" for a ratio of new to base. */
function judged(ratio, direction) {
  if (!isNumber(ratio) || ratio === 1 || direction === "none") return "";
  return (ratio > 1) === (direction === "lower") ? "worse" : "better";
}

/** Sides of a comparison: for each row a point with its interval on an axis that begins at zero. */
function versusChart(table) {
  const rows = table.rows.flatMap((row) => row.sides.map((side, i) => ({ ...side, what: i ? "" : `${row.what} · ${row.metric}`, of: row })));
  const charts = table.rows.map((row) => extent(row.sides.flatMap((side) => [side.value, side.high])));
  const height = 8 + rows.length * 24 + table.rows.length * 26;
  const wide = roomFor(720);
  const left = wide < 500 ? 110 : 150;
  const names = [...new Set(rows.map((side) => side.name))];
  const label = rows.map((side) => `${side.of.what}, ${side.name}: ${digits(side.value)} ${side.of.metric}`).join("; ");
  const svg = draw("svg", { viewBox: `0 0 ${wide} ${height}`, class: "chart", role: "img", "aria-label": label, style: { maxWidth: "900px" } });
  let y = 0;
  table.rows.forEach((row, k) => {
    const most = charts[k] ? charts[k][1] : 1;
    const x = (value) => left + (value / (most || 1)) * (wide - left - 130 * (wide / 720));
    y += 22;
    svg.append(draw("text", { class: "row-name", x: 0, y }, `${row.what} · ${row.metric}`));
    y += 4;
    for (const side of row.sides) {
      const colourOf = names.indexOf(side.name) % 6;
      svg.append(draw("text", { class: "tick", x: left - 10, y: y + 15, "text-anchor": "end" }, side.name));
      svg.append(draw("rect", { class: `side side-${colourOf}`, x: left, y: y + 5, width: round(Math.max(0, x(side.value || 0) - left)), height: 13, rx: 2 }));
      if (isNumber(side.low) && isNumber(side.high)) {
        svg.append(draw("path", { class: "whisker", d: `M${round(x(side.low))} ${y + 11.5}H${round(x(side.high))}M${round(x(side.low))} ${y + 7}v9M${round(x(side.high))} ${y + 7}v9` }));
      }
      svg.append(draw("text", { class: "tick", x: round(x(side.high || side.value || 0) + 8), y: y + 15 }, digits(side.value)));
      y += 24;
    }
  });
  return svg;
}
