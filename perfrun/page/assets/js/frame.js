"use strict";
// The frame of a drawn chart: its size, its two axes, and the places of values in it.

/** A chart's SVG with axes. `x` and `y` say {low, high, ticks: [[value, label]], title}; `place` maps values to pixels. */
function frame(width, height, label, x, y) {
  const left = 12 + 6.6 * Math.max(3, ...y.ticks.map(([, text]) => text.length));
  const box = { left, top: 22, right: width - 14, bottom: height - (x.title ? 40 : 26) };
  const place = {
    x: (value) => box.left + ((value - x.low) / (x.high - x.low || 1)) * (box.right - box.left),
    y: (value) => box.bottom - ((value - y.low) / (y.high - y.low || 1)) * (box.bottom - box.top),
  };
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: width > 600 ? "chart wide-chart" : "chart", role: "img", "aria-label": label,
    style: { maxWidth: `${width * 1.25}px` } });
  for (const [value, text] of y.ticks) {
    const at = round(place.y(value));
    svg.append(draw("line", { class: "grid", x1: box.left, x2: box.right, y1: at, y2: at }));
    svg.append(draw("text", { class: "tick", x: box.left - 6, y: at + 4, "text-anchor": "end" }, text));
  }
  for (const [value, text] of x.ticks) {
    const at = round(place.x(value));
    svg.append(draw("line", { class: "mark", x1: at, x2: at, y1: box.bottom, y2: box.bottom + 4 }));
    svg.append(draw("text", { class: "tick", x: at, y: box.bottom + 17, "text-anchor": "middle" }, text));
  }
  svg.append(draw("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  if (y.title) svg.append(draw("text", { class: "axis-title", x: 0, y: 12 }, y.title));
  if (x.title) {
    svg.append(draw("text", { class: "axis-title", x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, x.title));
  }
  return { svg, box, place };
}

/** The width of a chart that is to be `most` wide: on a phone less, so that its texts are not made small. */
function roomFor(most) {
  return Math.min(most, Math.max(320, document.documentElement.clientWidth - 56));
}

function round(value) {
  return Math.round(value * 10) / 10;
}

/** An axis over values of a unit: round ticks, labels in the unit that is read best. */
function valueAxis(low, high, unit, options = {}) {
  const margin = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  const from = options.zero ? Math.min(0, low) : low - margin;
  const to = high + margin;
  const scale = scaleFor(unit, Math.max(Math.abs(low), Math.abs(high)));
  // Round numbers of the unit that is shown: a gibibyte is no round number of bytes.
  const marks = ticks(from / scale.factor, to / scale.factor, options.ticks || 4).map((value) => value * scale.factor);
  const labels = tickLabels(marks, scale.factor);
  return { low: from, high: to, scale, ticks: marks.map((value, i) => [value, labels[i]]), title: titleOf(options.title, scale.name) };
}

function titleOf(text, unit) {
  return text && unit ? `${text} (${unit})` : text || unit;
}

/** The path of a line through points; a missing value breaks it. */
function linePath(xs, ys, place) {
  let path = "";
  let pen = "M";
  for (let i = 0; i < ys.length; i++) {
    if (!isNumber(ys[i]) || !isNumber(xs[i])) {
      pen = "M";
      continue;
    }
    path += `${pen}${round(place.x(xs[i]))} ${round(place.y(ys[i]))}`;
    pen = "L";
  }
  return path;
}

/** The outline of a band between two lists of values. */
function bandPath(xs, lows, highs, place) {
  let path = "";
  let run = [];
  const close = () => {
    if (run.length > 1) {
      const there = run.map((i) => `${round(place.x(xs[i]))} ${round(place.y(highs[i]))}`);
      const back = run.reverse().map((i) => `${round(place.x(xs[i]))} ${round(place.y(lows[i]))}`);
      path += `M${there.join("L")}L${back.join("L")}Z`;
    }
    run = [];
  };
  for (let i = 0; i < xs.length; i++) {
    if (isNumber(lows[i]) && isNumber(highs[i])) run.push(i);
    else close();
  }
  close();
  return path;
}

/** A list of numbers, thinned so that a line of `most` points looks the same: least and greatest of each stretch stay. */
function thinned(values, most) {
  if (values.length <= most) return values;
  const found = [];
  const stretch = (values.length * 2) / most;
  for (let start = 0; start < values.length; start += stretch) {
    const part = extent(values.slice(Math.floor(start), Math.floor(start + stretch)));
    if (part) found.push(...part);
    else found.push(null);
  }
  return found;
}

/** A chart with its heading, the buttons that save it and the table that says the same in words. */
function figure(name, svg, alternative, ...more) {
  return make("figure", {},
    make("figcaption", {}, make("span", { class: "chart-name" }, name), saveButtons(`${chartOwner()} ${name}`, () => svg)),
    make("div", { class: "scroller" }, svg), ...more, alternative ? asTable(name, alternative) : null);
}

function chartOwner() {
  return view.m ? shortName(view.m.split("|")[0]) : report.title || "report";
}

/** The values of a chart as a table, made when it is opened. `rows` gives the heading row first. */
function asTable(name, rows) {
  const details = make("details", { class: "values" }, make("summary", {}, "Values as a table"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    const [heading, ...body] = rows();
    const caption = body.length > 400 ? `${name}, the last 400 of ${body.length}` : name;
    details.append(make("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": name }, plainTable(caption, heading, body.slice(-400))));
  });
  return details;
}

function plainTable(caption, heading, body) {
  const row = (cells, tag) => make("tr", {}, cells.map((cell, i) => make(tag || (i ? "td" : "th"), { scope: tag ? "col" : i ? null : "row" }, cell)));
  return make("table", { class: "plain" }, make("caption", {}, caption),
    make("thead", {}, row(heading, "th")), make("tbody", {}, body.map((cells) => row(cells))));
}
