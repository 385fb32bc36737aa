"use strict";
// The table of all methods: sorted, filtered, searched.

const ROWS_SHOWN = 500;

function methodKey(method) {
  const index = byName();
  return index.get(method.name) > 1
    ? [method.name, method.environment, method.hardware, method.settings].map((part) => part || "").join("|")
    : method.name;
}

let names = null;

/** How many methods have each name: only a name that stands for several needs its environment in a link. */
function byName() {
  if (!names || names.of !== report) {
    const counts = new Map();
    for (const method of report.methods) counts.set(method.name, (counts.get(method.name) || 0) + 1);
    names = { of: report, counts };
  }
  return names.counts;
}

function findMethod(key) {
  return report.methods.find((method) => methodKey(method) === key) || report.methods.find((method) => method.name === key);
}

function mainSeries(method) {
  return report.series[method.main] || report.series[(method.series || [])[0]] || null;
}

function shortName(name) {
  return name.split(".").slice(-2).join(".");
}

/** A name whose last two parts stand out and which may break after each dot. */
function methodName(method) {
  const short = shortName(method.name);
  const before = method.name.slice(0, method.name.length - short.length);
  const breaking = (text) => text.split(/(?<=\.)/).flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part]));
  return make("span", { class: "method-name" }, before ? make("span", { class: "muted" }, breaking(before)) : null, breaking(short));
}

let changesBySeries = null;

function changesOf(series) {
  if (!changesBySeries || changesBySeries.of !== report) {
    const found = new Map();
    const byMethod = new Map();
    const add = (map, key, change) => {
      if (!map.has(key)) map.set(key, []);
      map.get(key).push(change);
    };
    for (const change of [...report.changes, ...(report.further || [])]) {
      const series = report.series[change.series];
      const method = report.methods[change.method ?? (series && series.method)];
      if (series) add(found, series, change);
      if (method) add(byMethod, method, change);
    }
    changesBySeries = { of: report, found, byMethod };
  }
  return changesBySeries.found.get(series) || [];
}

function changesOfMethod(method) {
  changesOf(null);
  return changesBySeries.byMethod.get(method) || [];
}

function arrowOf(ratio) {
  return ratio > 1 ? "▲" : "▼";
}

/** A difference counts when it is beyond twice the noise of the series. */
function difference(method, ratio) {
  const series = mainSeries(method);
  const known = isNumber(ratio) && series;
  const beyond = known && Math.abs(ratio - 1) > Math.max(2 * (method.noise ?? 0.02), 0.01);
  const kind = beyond ? judged(ratio, series.direction) : "";
  return { kind, text: percent(ratio), arrow: kind ? `${arrowOf(ratio)} ` : "" };
}

function isNoisy(method) {
  return isNumber(method.noise) && method.noise > 0.05;
}

const FILTERS = {
  all: ["All", () => true],
  worse: ["Worse", (method) => changesOfMethod(method).some((change) => change.direction === "worse")],
  better: ["Better", (method) => changesOfMethod(method).some((change) => change.direction === "better")],
  failed: ["Not passed", (method) => method.state !== "passed"],
  noisy: ["Noisy", isNoisy],
};

const COLUMNS = [
  { id: "name", title: "Method", of: (method) => method.name, text: true },
  { id: "value", title: "Latest", of: (method) => latest(method) },
  { id: "history", title: "History", of: null },
  { id: "night", title: "Last night", about: "against last night", of: (method) => method.against_last_night },
  { id: "baseline", title: "Baseline", about: "against the baseline", of: (method) => method.against_baseline },
  { id: "noise", title: "Noise", about: "spread of the series", of: (method) => method.noise },
  { id: "trials", title: "Trials", of: (method) => method.trials },
  { id: "state", title: "State", of: (method) => method.state, text: true },
  { id: "last", title: "Newest", of: (method) => method.last },
];

function latest(method) {
  const series = mainSeries(method);
  const values = (series && unpack(series.value)) || [];
  for (let i = values.length - 1; i >= 0; i--) if (isNumber(values[i])) return values[i];
  return null;
}

/** What needs attention first: failures, then changes for the worse, then all others by name. */
function attention(method) {
  const worse = changesOfMethod(method).filter((change) => change.direction === "worse");
  if (method.state !== "passed") return 0;
  if (worse.some((change) => change.status === "confirmed")) return 1;
  return worse.length ? 2 : 3;
}

function selectedMethods() {
  const words = view.q.toLowerCase().split(/\s+/).filter(Boolean);
  const [, keep] = FILTERS[Object.hasOwn(FILTERS, view.show) ? view.show : "all"];
  const found = report.methods.filter((method) => keep(method)
    && (!view.env || environmentOf(method) === view.env)
    && words.every((word) => `${method.name} ${environmentOf(method)} ${method.state}`.toLowerCase().includes(word)));
  const descending = view.sort.startsWith("-");
  const column = COLUMNS.find((item) => item.id === view.sort.replace("-", "") && item.of);
  const compare = column ? compareBy(column, descending) : (a, b) => attention(a) - attention(b) || compareText(a.name, b.name);
  return found.sort(compare);
}

function compareText(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

function compareBy(column, descending) {
  const cache = new Map();
  const value = (method) => {
    if (!cache.has(method)) cache.set(method, column.of(method));
    return cache.get(method);
  };
  const sign = descending ? -1 : 1;
  return (a, b) => {
    const [one, two] = [value(a), value(b)];
    // What is missing stands last in either direction.
    if (one === null || one === undefined || two === null || two === undefined) {
      return (one === null || one === undefined) - (two === null || two === undefined) || compareText(a.name, b.name);
    }
    return sign * (column.text ? compareText(one, two) : one - two) || compareText(a.name, b.name);
  };
}

function environmentOf(method) {
  return [method.environment, method.hardware_text || method.hardware, method.settings].filter(Boolean).join(" · ");
}

function showFilters() {
  refill(byId("filters"), Object.entries(FILTERS).map(([id, [title, keep]]) => {
    const number = report.methods.filter(keep).length;
    return make("button", { type: "button", "aria-pressed": String(view.show === id), "data-filter": id, disabled: id !== "all" && !number,
      onclick: () => { setView({ show: id }); showTable(); } }, `${title} `, make("span", { class: "count" }, String(number)));
  }));
  const environments = [...new Set(report.methods.map(environmentOf))].sort();
  const choice = byId("environments");
  byId("environment-choice").hidden = environments.length < 2;
  refill(choice, make("option", { value: "" }, "All environments"), environments.map((name) => make("option", { value: name }, name)));
  choice.value = environments.includes(view.env) ? view.env : "";
}

function sortState(column) {
  if (view.sort === column.id) return "ascending";
  return view.sort === `-${column.id}` ? "descending" : "none";
}

function headCell(column) {
  const state = sortState(column);
  const properties = { scope: "col", class: `col-${column.id}`, "aria-sort": column.of ? state : null, title: column.about || null };
  if (!column.of) return make("th", properties, column.title);
  const arrow = { ascending: "↑", descending: "↓", none: "" }[state];
  return make("th", properties, make("button", { type: "button", "data-sort": column.id, onclick: () => {
    const first = column.text ? column.id : `-${column.id}`;
    const second = column.text ? `-${column.id}` : column.id;
    setView({ sort: view.sort === first ? second : view.sort === second ? "" : first });
    showTable();
    document.querySelector(`#methods [data-sort="${column.id}"]`).focus();
  } }, column.title, make("span", { class: "arrow", "aria-hidden": "true" }, arrow)));
}

function methodRow(method) {
  const series = mainSeries(method);
  const night = difference(method, method.against_last_night);
  const baseline = difference(method, method.against_baseline);
  const picture = make("td", { class: "col-history" });
  if (series) whenSeen(picture, () => append(picture, [sparkline(series, changesOf(series))]));
  const value = latest(method);
  return make("tr", {},
    make("th", { scope: "row", class: "col-name" }, make("a", { href: methodLink(method) }, methodName(method)),
      make("small", { class: "muted" }, environmentOf(method))),
    make("td", { class: "col-value" }, series ? withUnit(value, series.unit) : "–"),
    picture,
    make("td", { class: `col-night ${night.kind}`, "data-label": "last night" }, night.arrow, night.text),
    make("td", { class: `col-baseline ${baseline.kind}`, "data-label": "baseline" }, baseline.arrow, baseline.text),
    make("td", { class: "col-noise", "data-label": "noise" }, share(method.noise), method.grade ? make("small", { class: "muted", title: "grade of the series" }, ` ${method.grade}`) : null),
    make("td", { class: "col-trials" }, (method.trials || 0).toLocaleString("en"), method.failed ? make("small", { class: "failed-text" }, ` ${method.failed} failed`) : null),
    make("td", { class: "col-state" }, make("span", { class: `badge state-${outcomeKind(method.state)}` }, method.state)),
    make("td", { class: "col-last" }, day(method.last)));
}

function showTable(all) {
  const methods = selectedMethods();
  const shown = all ? methods : methods.slice(0, ROWS_SHOWN);
  showFilters();
  refill(byId("methods-head"), make("tr", {}, COLUMNS.map(headCell)));
  refill(byId("methods-body"), shown.map(methodRow));
  refill(byId("methods-more"), shown.length < methods.length
    ? make("button", { type: "button", onclick: () => showTable(true) }, `Show all ${methods.length}`) : null);
  byId("found").textContent = methods.length === report.methods.length
    ? count(methods.length, "method") : `${methods.length} of ${count(report.methods.length, "method")}`;
  byId("nothing").hidden = methods.length > 0;
  forgetUnseen();
}

function saveTable() {
  const rows = selectedMethods().map((method) => {
    const series = mainSeries(method);
    return [method.name, method.environment, method.hardware, series && series.metric, series && series.unit, latest(method), method.against_last_night,
      method.against_baseline, method.noise, method.grade, method.trials, method.failed, method.state, iso(method.last)];
  });
  saveCsv([["method", "environment", "hardware", "metric", "unit", "latest", "against_last_night", "against_baseline", "noise", "grade",
    "trials", "failed", "state", "newest"], ...rows], fileName(report.title || "methods", "csv"));
}
