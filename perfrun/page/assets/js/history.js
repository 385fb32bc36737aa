"use strict";
// The history of a series: one model of what is to be seen, drawn by uPlot on the screen and as SVG for files and paper.

const DISTURBED = 1;
const ABSENT = 2;

/** All there is to draw: points in the order of time, steps between changes and cuts, markers. */
function historyModel(series) {
  const values = unpack(series.value) || [];
  const times = unpack(series.time) || values.map((_, i) => i);
  const flags = unpackBytes(series.flags);
  const lows = unpack(series.low);
  const highs = unpack(series.high);
  const commits = unpack(series.commit);
  const order = values.map((_, i) => i).filter((i) => isNumber(times[i])).sort((a, b) => times[a] - times[b] || a - b);
  const pick = (list) => order.map((i) => (list && isNumber(list[i]) ? list[i] : null));
  const model = {
    series,
    x: pick(times),
    y: pick(values),
    low: pick(lows),
    high: pick(highs),
    hasBand: Boolean(lows && highs),
    flags: order.map((i) => (flags ? flags[i] || 0 : 0)),
    commits: order.map((i) => (commits && isNumber(commits[i]) ? (series.commits || report.commits)[Math.round(commits[i])] : null)),
    changes: changesOf(series).filter((change) => change.at >= 0 && change.at < order.length),
    cuts: (series.cuts || []).filter((cut) => cut.at >= 0 && cut.at < order.length),
  };
  model.steps = steps(model);
  return model;
}

/** The median between one change or cut and the next, as a list beside the values. */
function steps(model) {
  const starts = new Set([0, ...model.changes.map((change) => change.at), ...model.cuts.map((cut) => cut.at)]);
  const bounds = [...starts].sort((a, b) => a - b).concat(model.y.length);
  const found = [];
  for (let k = 0; k + 1 < bounds.length; k++) {
    const part = model.y.map((_, i) => i).slice(bounds[k], bounds[k + 1]);
    const calm = part.filter((i) => !(model.flags[i] & DISTURBED));
    const middle = median((calm.length ? calm : part).map((i) => model.y[i]));
    for (let i = bounds[k]; i < bounds[k + 1]; i++) found.push(middle);
  }
  return found;
}

/** The range of values to show: all of it, or what lies between two times; intervals count a little less. */
function valueRange(model, from, to) {
  const inside = model.x.map((x) => (from === null || x >= from) && (to === null || x <= to));
  const range = extent(model.y.filter((_, i) => inside[i]), [model.series.baseline].filter(isNumber));
  if (!range) return [0, 1];
  const spread = range[1] - range[0] || Math.abs(range[1]) * 0.1 || 1;
  const band = extent(model.low.filter((_, i) => inside[i]), model.high.filter((_, i) => inside[i])) || range;
  const low = Math.max(band[0], range[0] - spread * 0.5);
  const high = Math.min(band[1], range[1] + spread * 0.5);
  const margin = (Math.max(high, range[1]) - Math.min(low, range[0])) * 0.06 || spread * 0.06;
  const floor = Math.min(low, range[0]) - margin;
  return [view.axis === "zero" ? Math.min(0, floor) : floor, Math.max(high, range[1]) + margin];
}

/** What a chart of history says, in a sentence. */
function historyWords(model) {
  const { series } = model;
  const known = model.y.filter(isNumber);
  if (!known.length) return `${series.metric}: no values.`;
  const parts = [`${series.metric} on ${count(known.length, "night")} from ${day(model.x[0])} to ${day(model.x[model.x.length - 1])}`,
    `median ${withUnit(median(known), series.unit)}, last ${withUnit(known[known.length - 1], series.unit)}`];
  for (const change of model.changes) parts.push(`${percent(change.ratio)} (${change.direction}, ${change.status}) on ${change.night}`);
  for (const cut of model.cuts) parts.push(`${cut.text} on ${day(model.x[cut.at])}`);
  const disturbed = model.flags.filter((flag) => flag & DISTURBED).length;
  if (disturbed) parts.push(count(disturbed, "disturbed observation"));
  return `${parts.join("; ")}.`;
}

/** Lines about one point, for the eye (beside the pointer) and the ear. */
function pointLines(model, i) {
  const { series } = model;
  const lines = [["when", minute(model.x[i])]];
  let value = isNumber(model.y[i]) ? withUnit(model.y[i], series.unit) : "no value";
  if (isNumber(model.low[i]) && isNumber(model.high[i])) value += ` (${withUnit(model.low[i], series.unit)} to ${withUnit(model.high[i], series.unit)})`;
  lines.push(["value", value]);
  if (isNumber(series.baseline) && isNumber(model.y[i])) lines.push(["note", `${percent(model.y[i] / series.baseline)} against the baseline`]);
  if (model.flags[i] & DISTURBED) lines.push(["disturbed", "disturbed: the machine was busy"]);
  if (model.flags[i] & ABSENT) lines.push(["disturbed", "failed, or no result"]);
  const commit = model.commits[i];
  if (commit) lines.push(["note", `${commit.id.slice(0, 12)} ${commit.subject || ""}`]);
  const change = model.changes.find((item) => item.at === i);
  if (change) lines.push([change.direction, `${percent(change.ratio)}, ${change.status}`]);
  const cut = model.cuts.filter((item) => item.at <= i).pop();
  if (cut) lines.push(["cut", `${cut.at === i ? "new environment" : `environment since ${day(model.x[cut.at])}`}: ${cut.text}`]);
  return lines;
}

/** Put the chart of a history into a figure; returns what draws it anew and what it is as SVG. */
function historyChart(host, model) {
  const tip = make("div", { class: "tip", hidden: true });
  const stage = make("div", { class: "stage" });
  const area = make("div", {
    class: "history", tabindex: "0", role: "application", "aria-roledescription": "chart",
    "aria-label": `${historyWords(model)} Left and right arrows read the nights, plus and minus zoom, zero shows all.`,
  }, stage, tip);
  host.append(area);
  const colours = {};
  const pickColours = () => {
    for (const name of ["ink", "muted", "grid", "line", "band", "step", "worse", "better", "cut", "warn", "panel", "baseline"]) colours[name] = colour(name);
  };
  pickColours();
  let plot = null;

  const width = () => Math.max(280, Math.floor(area.clientWidth || 720));
  const height = () => (width() < 600 ? 260 : 340);
  const full = [model.x[0], model.x[model.x.length - 1]];
  if (full[0] === full[1]) full.splice(0, 2, full[0] - 43200, full[1] + 43200);
  const range = () => [seconds(view.from) ?? full[0], seconds(view.to) ?? full[1]];

  const build = () => {
    if (plot) plot.destroy();
    plot = new uPlot(plotOptions(model, colours, { width: width(), height: height(), range, hover: showTip, zoomed }),
      [model.x, model.y, model.steps, model.low, model.high], stage);
    plot.over.addEventListener("wheel", wheel, { passive: false });
    plot.over.addEventListener("dblclick", () => zoom(...full));
  };

  function showTip(i) {
    if (i === null || i === undefined || !plot) {
      tip.hidden = true;
      return;
    }
    refill(tip, pointLines(model, i).map(([kind, text]) => make("div", { class: `tip-${kind}` }, text)));
    tip.hidden = false;
    const left = plot.over.offsetLeft + plot.valToPos(model.x[i], "x");
    const beside = left > width() / 2 ? left - tip.offsetWidth - 14 : left + 14;
    tip.style.left = `${Math.max(0, Math.min(beside, width() - tip.offsetWidth))}px`;
    tip.style.top = "30px";
  }

  function zoomed(from, to) {
    const all = from <= full[0] && to >= full[1];
    setView({ from: all ? "" : stamp(from), to: all ? "" : stamp(to) });
    showRange();
  }

  // The range is stored by the hour: finer than anybody looks, and short.
  function stamp(time) {
    return iso(time).slice(0, 13) + ":00";
  }

  let pending = 0;
  function zoom(from, to) {
    const least = Math.max(3600, (full[1] - full[0]) / 400);
    if (to - from < least) return;
    plot.setScale("x", { min: Math.max(full[0], from), max: Math.min(full[1], to) });
    clearTimeout(pending);
    pending = setTimeout(() => zoomed(plot.scales.x.min, plot.scales.x.max), 150);
  }

  function wheel(event) {
    if (!event.ctrlKey && !event.shiftKey && document.activeElement !== area) return;
    event.preventDefault();
    const { min, max } = plot.scales.x;
    const at = plot.posToVal(event.offsetX, "x");
    const factor = (event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8;
    zoom(at - (at - min) * factor, at + (max - at) * factor);
  }

  let current = null;
  area.addEventListener("keydown", (event) => {
    const { min, max } = plot.scales.x;
    const seen = model.x.map((_, i) => i).filter((i) => model.x[i] >= min && model.x[i] <= max);
    const last = seen.length - 1;
    const at = current === null ? last + 1 : seen.indexOf(current);
    const moves = { ArrowLeft: at - 1, ArrowRight: current === null ? 0 : at + 1, Home: 0, End: last };
    const middle = current === null ? (min + max) / 2 : model.x[current];
    if (event.key in moves && last >= 0) {
      current = seen[Math.max(0, Math.min(last, moves[event.key]))];
      plot.setCursor({ left: plot.valToPos(model.x[current], "x"), top: 40 });
      showTip(current);
      announce(pointLines(model, current).map(([, text]) => text).join(", "));
    } else if (event.key === "+" || event.key === "=") zoom(middle - (middle - min) * 0.7, middle + (max - middle) * 0.7);
    else if (event.key === "-") zoom(middle - (middle - min) * 1.5, middle + (max - middle) * 1.5);
    else if (event.key === "0") zoom(...full);
    else if (event.key === "Escape") {
      current = null;
      showTip(null);
      return;
    } else return;
    event.preventDefault();
  });
  area.addEventListener("blur", () => { current = null; showTip(null); });

  build();
  new ResizeObserver(() => {
    if (plot && area.isConnected && plot.width !== width()) plot.setSize({ width: width(), height: height() });
  }).observe(area);
  return {
    redraw: () => { pickColours(); build(); },
    rescale: () => plot.setScale("x", { min: range()[0], max: range()[1] }),
    zoom: (days) => zoom(days ? full[1] - days * 86400 : full[0], full[1]),
    svg: () => historySvg(model, ...range()),
    element: area,
  };
}

function plotOptions(model, colours, { width, height, range, hover, zoomed }) {
  const font = "12px system-ui, sans-serif";
  const axis = { stroke: colours.muted, font, grid: { stroke: colours.grid, width: 1 }, ticks: { stroke: colours.grid, width: 1, size: 4 } };
  let scale = { factor: 1, name: "" };
  const [from, to] = range();
  return {
    width,
    height,
    legend: { show: false },
    padding: [44, 12, 0, 0],
    cursor: {
      drag: { x: true, y: false },
      points: { size: (_, i) => (i === 1 ? 9 : 0), fill: colours.panel, stroke: colours.line, width: 2 },
      y: false,
    },
    select: { show: true },
    scales: {
      x: { time: true, min: from, max: to },
      y: { range: (plot) => valueRange(model, plot.scales.x.min ?? null, plot.scales.x.max ?? null) },
    },
    axes: [
      { ...axis, splits: (plot, _, low, high) => timeTicks(low, high, plot.bbox.width / devicePixelRatio / 90).map(([t]) => t),
        values: (plot, splits) => labelsAt(splits, timeTicks(plot.scales.x.min, plot.scales.x.max, plot.bbox.width / devicePixelRatio / 90)) },
      { ...axis, size: 62,
        splits: (_, __, low, high) => ticks(low, high, 5),
        values: (_, splits) => {
          scale = scaleFor(model.series.unit, Math.max(...splits.map(Math.abs)));
          const labels = tickLabels(splits, scale.factor);
          return labels.map((text) => (scale.name.length < 4 && scale.name ? `${text} ${scale.name}` : text));
        } },
    ],
    series: [
      {},
      { stroke: colours.line, width: 1.2, points: { show: (plot, _, low, high) => (high - low) * 9 < plot.bbox.width, size: 5, fill: colours.line, stroke: colours.line } },
      { stroke: colours.step, width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
      { stroke: "transparent", points: { show: false } },
      { stroke: "transparent", points: { show: false } },
    ],
    bands: model.hasBand ? [{ series: [4, 3], fill: colours.band }] : [],
    hooks: {
      drawClear: [(plot) => paintBaseline(plot, model, colours)],
      draw: [(plot) => paintMarkers(plot, model, colours)],
      setCursor: [(plot) => hover(plot.cursor.left >= 0 ? plot.cursor.idx : null)],
      setSelect: [(plot) => {
        if (plot.select.width < 10) return;
        zoomed(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"));
      }],
    },
  };
}

function labelsAt(splits, marks) {
  const labels = new Map(marks);
  return splits.map((split) => labels.get(split) ?? "");
}

function paintBaseline(plot, model, colours) {
  if (!isNumber(model.series.baseline)) return;
  const { ctx, bbox } = plot;
  const y = plot.valToPos(model.series.baseline, "y", true);
  if (y < bbox.top || y > bbox.top + bbox.height) return;
  ctx.save();
  ctx.strokeStyle = colours.baseline;
  ctx.setLineDash([2 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.lineWidth = devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.restore();
}

/** Disturbed observations, changes and cuts, above the line. */
function paintMarkers(plot, model, colours) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const { min, max } = plot.scales.x;
  const x = (i) => plot.valToPos(model.x[i], "x", true);
  ctx.save();
  ctx.lineWidth = 1.6 * ratio;
  ctx.strokeStyle = colours.warn;
  ctx.fillStyle = colours.panel;
  model.flags.forEach((flag, i) => {
    if (!flag || model.x[i] < min || model.x[i] > max) return;
    ctx.beginPath();
    if (flag & ABSENT || !isNumber(model.y[i])) cross(ctx, x(i), bbox.top + bbox.height - 6 * ratio, 3 * ratio);
    else {
      diamond(ctx, x(i), plot.valToPos(model.y[i], "y", true), 4.5 * ratio);
      ctx.fill();
    }
    ctx.stroke();
  });
  ctx.font = `600 ${11.5 * ratio}px system-ui, sans-serif`;
  ctx.textBaseline = "middle";
  for (const label of markerLabels(model, min, max, (i) => x(i) / ratio, (text) => ctx.measureText(text).width / ratio, bbox.left / ratio, (bbox.left + bbox.width) / ratio)) {
    ctx.strokeStyle = colours[label.kind];
    ctx.fillStyle = colours[label.kind];
    ctx.lineWidth = 1.5 * ratio;
    ctx.setLineDash(label.dashed ? [4 * ratio, 4 * ratio] : []);
    ctx.beginPath();
    ctx.moveTo(label.x * ratio, bbox.top - 2 * ratio);
    ctx.lineTo(label.x * ratio, bbox.top + bbox.height);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.fillText(label.text, label.left * ratio, (label.row ? 32 : 14) * ratio);
  }
  ctx.restore();
}

function diamond(ctx, x, y, r) {
  ctx.moveTo(x, y - r);
  ctx.lineTo(x + r, y);
  ctx.lineTo(x, y + r);
  ctx.lineTo(x - r, y);
  ctx.closePath();
}

function cross(ctx, x, y, r) {
  ctx.moveTo(x - r, y - r);
  ctx.lineTo(x + r, y + r);
  ctx.moveTo(x - r, y + r);
  ctx.lineTo(x + r, y - r);
}

/** The labels above the chart, in two rows: a label that would cover another is cut short or left out. */
function markerLabels(model, min, max, place, measure, left, right) {
  const found = [];
  const ends = [left, left];
  const marks = [
    ...model.changes.map((change) => ({ at: change.at, kind: change.direction === "worse" ? "worse" : "better", dashed: change.status !== "confirmed",
      text: `${arrowOf(change.ratio)} ${percent(change.ratio)}`, row: 0 })),
    ...model.cuts.map((cut) => ({ at: cut.at, kind: "cut", dashed: true, text: cut.text, row: 1 })),
  ].filter((mark) => model.x[mark.at] >= min && model.x[mark.at] <= max).sort((a, b) => model.x[a.at] - model.x[b.at]);
  for (const mark of marks) {
    const x = place(mark.at);
    let text = mark.text.length > 40 ? `${mark.text.slice(0, 39)}…` : mark.text;
    let start = Math.min(x - 4, right - measure(text));
    if (start < ends[mark.row]) start = ends[mark.row];
    if (start > x + 2 || start + measure(text) > right + 1) text = "";
    if (text) ends[mark.row] = start + measure(text) + 10;
    found.push({ ...mark, x, text, left: start });
  }
  return found;
}

/** The same chart as SVG, for files and for paper. */
function historySvg(model, from, to) {
  const { series } = model;
  const range = valueRange(model, from, to);
  const scale = scaleFor(series.unit, Math.max(Math.abs(range[0]), Math.abs(range[1])));
  const marks = ticks(range[0], range[1], 5);
  const labels = tickLabels(marks, scale.factor);
  const { svg, box, place } = frame(960, 340, historyWords(model),
    { low: from, high: to, ticks: timeTicks(from, to, 8) },
    { low: range[0], high: range[1], ticks: marks.map((value, i) => [value, labels[i]]), title: "" });
  const inside = model.x.map((x) => x >= from && x <= to);
  const only = (list) => list.map((value, i) => (inside[i] ? value : null));
  const clampTo = (list) => only(list).map((value) => (isNumber(value) ? Math.max(range[0], Math.min(range[1], value)) : null));
  if (model.hasBand) svg.append(draw("path", { class: "band", d: bandPath(model.x, clampTo(model.low), clampTo(model.high), place) }));
  if (isNumber(series.baseline)) {
    const y = round(place.y(series.baseline));
    svg.append(draw("line", { class: "baseline", x1: box.left, x2: box.right, y1: y, y2: y }));
  }
  svg.append(draw("path", { class: "line", d: linePath(model.x, only(model.y), place) }));
  svg.append(draw("path", { class: "step", d: linePath(model.x, only(model.steps), place) }));
  model.flags.forEach((flag, i) => {
    if (!flag || !inside[i] || !isNumber(model.y[i])) return;
    svg.append(draw("path", { class: "disturbed", d: `M${round(place.x(model.x[i]))} ${round(place.y(model.y[i]) - 4)}l4 4l-4 4l-4 -4z` }));
  });
  for (const label of markerLabels(model, from, to, (i) => place.x(model.x[i]), (text) => text.length * 6.4, box.left, box.right)) {
    svg.append(draw("line", { class: `marker ${label.kind}${label.dashed ? " dashed" : ""}`, x1: round(label.x), x2: round(label.x), y1: box.top - 2, y2: box.bottom }));
    if (label.text) svg.append(draw("text", { class: `marker-text ${label.kind}`, x: round(label.left), y: label.row ? 19 : 8 }, label.text));
  }
  svg.append(draw("text", { class: "axis-title", x: 2, y: box.bottom + 17 }, scale.name || ""));
  return svg;
}

function historyRows(model) {
  const { series } = model;
  return [["Night", series.metric, "Low", "High", "Commit", "Remarks"],
    ...model.x.map((x, i) => [minute(x), withUnit(model.y[i], series.unit), withUnit(model.low[i], series.unit), withUnit(model.high[i], series.unit),
      model.commits[i] ? `${model.commits[i].id.slice(0, 12)} ${model.commits[i].subject || ""}` : "",
      pointLines(model, i).filter(([kind]) => ["disturbed", "worse", "better", "cut"].includes(kind)).map(([, text]) => text).join("; ")])];
}
