"use strict";
// One method: its history first, then all that its newest trial says.

let openChart = null;

function showMethod(method) {
  const detail = Number.isInteger(method.detail) ? (report.details || [])[method.detail] : null;
  const all = (method.series || []).map((index) => report.series[index]).filter(Boolean);
  const series = all.find((item) => item.metric === view.metric) || mainSeries(method);
  openChart = null;
  refill(byId("method"),
    make("nav", {}, make("a", { href: fragment({ m: "", metric: "", from: "", to: "" }), class: "back" }, "← All methods")),
    methodHeading(method, series),
    changesOfMethod(method).length ? section("Changes", changeList(changesOfMethod(method), true)) : null,
    series ? historySection(method, all, series) : null,
    pairSections(method),
    detail ? detailSections(detail) : null,
    isLive() && method.href && !method.isWhole ? make("p", { id: "coming", class: "muted", role: "status" }, "The newest trial of this method is being read …") : null);
  if (isLive()) complete(method);
}

function section(title, ...content) {
  const id = `part-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return make("section", { "aria-labelledby": id }, make("h3", { id }, title), content);
}

function methodHeading(method, series) {
  const fact = (name, ...value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));
  const compared = (ratio) => {
    const found = difference(method, ratio);
    return make("span", { class: found.kind }, found.arrow, found.text);
  };
  const detail = Number.isInteger(method.detail) ? (report.details || [])[method.detail] : null;
  return make("header", {},
    make("h2", { tabindex: "-1", id: "method-title" }, methodName(method)),
    make("dl", { class: "facts" },
      fact("State", make("span", { class: `badge state-${outcomeKind(method.state)}` }, method.state)),
      series ? fact("Latest", withUnit(latest({ ...method, main: report.series.indexOf(series) }), series.unit)) : null,
      fact("Against last night", compared(method.against_last_night)), fact("Against baseline", compared(method.against_baseline)),
      fact("Noise", share(method.noise), method.grade ? ` (grade ${method.grade})` : ""),
      fact("Trials", (method.trials || 0).toLocaleString("en"), method.failed ? `, ${method.failed} failed` : ""),
      fact("Environment", environmentOf(method) || "–"), fact("Newest", minute(method.last))),
    detail && detail.command ? make("div", { class: "command" }, make("code", {}, detail.command), copyButton("Copy command", () => detail.command)) : null);
}

const RANGES = [["30 days", 30], ["90 days", 90], ["1 year", 365], ["All", 0]];

function historySection(method, all, series) {
  const host = make("div", { class: "chart-host" });
  const choices = all.length > 1 ? make("label", {}, "Metric ", make("select", {
    id: "metric", onchange: (event) => { setView({ metric: event.target.value }); showMethod(method); byId("metric").focus(); },
  }, all.map((item) => make("option", { value: item.metric, selected: item === series }, item.unit && item.unit !== "1" ? `${item.metric} (${item.unit})` : item.metric)))) : null;
  const axis = make("button", { type: "button", id: "axis", "aria-pressed": String(view.axis === "zero"), onclick: () => {
    setView({ axis: view.axis === "zero" ? "data" : "zero" });
    axis.setAttribute("aria-pressed", String(view.axis === "zero"));
    if (openChart) openChart.redraw();
  } }, "Axis from zero");
  const zoom = make("span", { class: "group", role: "group", "aria-label": "Range" }, RANGES.map(([title, days]) =>
    make("button", { type: "button", "data-days": String(days), onclick: () => openChart && openChart.zoom(days) }, title)));
  const shownRange = make("span", { id: "range", class: "muted" });
  const key = make("ul", { class: "legend key" }, legendOf(series).map(([kind, text]) => make("li", {}, make("i", { class: `key-${kind}` }), text)));
  const box = make("figure", { class: "wide" },
    make("figcaption", {}, choices, zoom, axis, shownRange, saveButtons(`${shortName(method.name)} ${series.metric}`, () => openChart.svg())),
    host, key);
  whenSeen(host, async () => {
    await fetched(series);
    const model = historyModel(series);
    if (!model.x.length) {
      refill(host, make("p", { class: "muted" }, "No values yet."));
      return;
    }
    openChart = historyChart(host, model);
    box.append(asTable(`History of ${series.metric}`, () => historyRows(model)));
    showRange();
  });
  return section("History", box, make("p", { class: "hint" },
    "Drag to zoom, double-click to show all. With the keyboard: arrows read the nights, + and − zoom, 0 shows all."));
}

function legendOf(series) {
  const found = [["line", "night"], ["step", "median between changes"]];
  if (series.low && series.high) found.push(["band", "interval"]);
  const flags = unpackBytes(series.flags);
  if (flags && flags.some((flag) => flag & DISTURBED)) found.push(["disturbed", "disturbed observation"]);
  const changes = changesOf(series);
  if (changes.some((change) => change.direction === "worse")) found.push(["worse", "worse"]);
  if (changes.some((change) => change.direction === "better")) found.push(["better", "better"]);
  if ((series.cuts || []).length) found.push(["cut", "environment changed"]);
  if (isNumber(series.baseline)) found.push(["baseline", "baseline"]);
  return found;
}

function showRange() {
  const shown = byId("range");
  if (shown) shown.textContent = view.from || view.to ? `${view.from.slice(0, 10)} to ${view.to.slice(0, 10)}` : "";
}

function pairSections(method) {
  const found = (report.pairs || []).filter((pairs) => (method.series || []).includes(pairs.series) || pairs.method === method.name);
  if (!found.length) return null;
  return section("Paired trials", make("div", { class: "charts" }, found.map((pairs) => {
    const series = report.series[pairs.series] || { metric: pairs.metric || "", unit: pairs.unit || "", direction: "none" };
    const svg = pairChart(pairs, series);
    return svg && figure(pairs.title, svg, () => [["Pair", "Base", "New", "Ratio"], ...(unpack(pairs.base) || []).map((value, i) => {
      const fresh = (unpack(pairs.new) || [])[i];
      return [String(i + 1), withUnit(value, series.unit), withUnit(fresh, series.unit), digits(fresh / value)];
    })]);
  })));
}

function detailSections(detail) {
  const samples = detail.samples || detail.warmup ? sampleChart(detail, detail.samples_unit || "s") : null;
  const phases = detail.phases || [];
  const lines = (detail.timeline || []).map((line) => [line, timelineChart(line, phases)]).filter(([, svg]) => svg);
  return [
    (detail.doubts || []).length ? make("div", { class: "notice doubts" }, make("b", {}, "Doubts about the newest trial"), make("ul", {}, detail.doubts.map((text) => make("li", {}, text)))) : null,
    (detail.failures || []).length ? section("Failures", detail.failures.map(failureItem)) : null,
    samples ? section("Samples of the newest trial", make("p", { class: "hint" }, [detail.steady && `Steady state: ${detail.steady}.`,
      detail.samples_every > 1 && `One sample in ${detail.samples_every} is shown.`].filter(Boolean).join(" ")),
      figure("samples", samples, () => [["Iteration", "Value", "Part"],
        ...(unpack(detail.warmup) || []).map((value, i) => [String(i + 1), withUnit(value, detail.samples_unit), "warm-up"]),
        ...(unpack(detail.samples) || []).map((value, i) => [String((unpack(detail.warmup) || []).length + i + 1), withUnit(value, detail.samples_unit), "sample"])])) : null,
    lines.length ? section("Over the time of the trial", make("div", { class: "charts" }, lines.map(([line, svg]) =>
      figure(line.name, svg, () => [["Time", line.name], ...(unpack(line.t) || []).map((t, i) => [withUnit(t, "s"), withUnit((unpack(line.y) || [])[i], line.unit)])])))) : null,
    phases.length || (detail.memory || []).length ? section("Phases and memory", make("div", { class: "columns" },
      phases.length ? plainTable("Phases", ["Phase", "Time"], phases.map((phase) => [phase.name, withUnit(phase.seconds, "s")])) : null,
      (detail.memory || []).length ? plainTable("Memory", ["What", "Size"], detail.memory.map((item) => [item.name, withUnit(item.bytes, "bytes")])) : null)) : null,
    (detail.environment || []).length || (detail.differences || []).length ? section("Environment", make("div", { class: "columns" },
      (detail.differences || []).length ? plainTable("Differences from the last good run", ["What", "Then", "Now"], detail.differences) : null,
      (detail.environment || []).length ? plainTable("Environment of the newest trial", ["What", "Value"], detail.environment) : null)) : null,
    (detail.profiles || []).length ? section("Profiles", make("ul", {}, detail.profiles.map((link) =>
      make("li", {}, isRelative(link) && !isLive() ? make("a", { href: link, rel: "noopener" }, link) : make("code", {}, link))))) : null,
    (detail.log_tail || []).length ? section("End of the log", logLines(detail.log_tail)) : null,
  ];
}

function failureItem(failure) {
  return make("div", { class: "failure" }, make("p", {}, make("b", {}, failure.reason), make("span", { class: "muted" }, ` ${minute(failure.time)}`)),
    (failure.tail || []).length ? logLines(failure.tail) : null);
}

function logLines(lines) {
  return make("pre", { tabindex: "0", role: "region", "aria-label": "Log" }, lines.join("\n"));
}

/** A link is followed only where it stays beside this page: no scheme, no host, no way up. */
function isRelative(link) {
  return /^(\.\/)?[A-Za-z0-9_][^:\\?#]*$/.test(link) && !link.includes("//") && !link.split("/").includes("..");
}
