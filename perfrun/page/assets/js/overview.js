"use strict";
// The first screen: how old the data is, what ran where, how it ended, what got worse.

function showHeading() {
  byId("title").textContent = report.title || "Benchmark report";
  byId("selection").textContent = report.selection || "";
  const age = Date.now() / 1000 - report.newest;
  refill(byId("age"),
    make("span", { class: age > 36 * 3600 ? "age old" : "age" }, isNumber(report.newest) ? `Newest trial ${ago(report.newest)}` : "No trials"),
    make("span", { class: "muted" }, isNumber(report.newest) ? ` ${minute(report.newest)}` : ""),
    isNumber(report.made) ? make("span", { class: "muted" }, ` · page made ${minute(report.made)}`) : null,
    report.perfrun ? make("span", { class: "muted" }, ` · perfrun ${report.perfrun}`) : null);
}

function showOutcomes() {
  const outcomes = Object.entries(report.outcomes || {}).filter(([, number]) => number > 0)
    .sort((a, b) => (b[0] === "passed") - (a[0] === "passed") || b[1] - a[1]);
  const total = outcomes.reduce((sum, [, number]) => sum + number, 0);
  const worse = report.changes.filter((change) => change.direction === "worse");
  const confirmed = worse.filter((change) => change.status === "confirmed").length;
  const failing = report.methods.filter((method) => method.state !== "passed").length;
  refill(byId("tiles"),
    tile(worse.length ? "worse" : "fine", String(worse.length), worse.length === 1 ? "change for the worse" : "changes for the worse",
      worse.length ? `${confirmed} confirmed` : "none found"),
    tile(failing ? "failed" : "fine", String(failing), failing === 1 ? "method does not pass" : "methods do not pass", `of ${report.methods.length}`),
    make("div", { class: "tile wide" },
      make("div", { class: "tile-line" }, make("b", {}, total.toLocaleString("en")), " trials"), outcomeBar(outcomes),
      make("ul", { class: "legend" }, outcomes.map(([name, number]) =>
        make("li", {}, make("i", { class: `swatch outcome-${outcomeKind(name)}` }), `${name} `, make("b", {}, number.toLocaleString("en")))))));
  refill(byId("machines"), report.machines.map((machine) => make("li", {},
    make("b", {}, machine.name), ` ${[machine.cpu, machine.accelerators].filter(Boolean).join(" · ")}`,
    make("span", { class: "muted" }, ` ${count(machine.trials || 0, "trial")}, last ${ago(machine.last)}`))));
  byId("machines").hidden = !report.machines.length;
}

function tile(kind, figureText, words, more) {
  return make("div", { class: `tile ${kind}` }, make("b", { class: "figure" }, figureText), make("span", {}, words), make("small", {}, more));
}

function showWarnings() {
  const list = report.warnings || [];
  if (byId("warnings").hidden) byId("warnings").open = window.innerWidth > 720; // later it is the reader's choice
  byId("warnings").hidden = !list.length;
  byId("warnings-title").textContent = `Read with care: ${count(list.length, "warning")}`;
  refill(byId("warning-list"), list.map((text) => make("li", {}, text)));
}

const CHANGES_SHOWN = 8;

function showChanges() {
  const worse = report.changes.filter((change) => change.direction === "worse");
  const better = report.changes.filter((change) => change.direction !== "worse");
  refill(byId("changes"),
    worse.length ? changeList(worse) : make("p", { class: "fine-line" }, "No change for the worse was found in this selection."),
    better.length ? make("details", { class: "better-changes" },
      make("summary", {}, count(better.length, "change for the better", "changes for the better")), changeList(better)) : null);
}

/** A list of changes; beside the method itself its name is left out. */
function changeList(changes, beside) {
  const list = make("ol", { class: "changes" }, changes.slice(0, CHANGES_SHOWN).map((change) => changeItem(change, beside)));
  if (changes.length <= CHANGES_SHOWN) return list;
  const more = make("button", { type: "button", onclick: () => {
    append(list, changes.slice(CHANGES_SHOWN).map((change) => changeItem(change, beside)));
    more.remove();
  } }, `Show all ${changes.length}`);
  return [list, more];
}

function changeItem(change, beside) {
  const series = report.series[change.series];
  const method = report.methods[change.method ?? (series && series.method)];
  if (!method) return null;
  const metric = series ? series.metric : change.metric || "";
  const picture = make("span", { class: "change-spark" });
  if (series) whenSeen(picture, () => append(picture, [sparkline(series, [change])]));
  return make("li", { class: `change ${change.direction}` },
    make("div", { class: "change-size" },
      make("b", {}, `${arrowOf(change.ratio)} ${percent(change.ratio)}`),
      isNumber(change.low) && isNumber(change.high) ? make("small", {}, `${percent(change.low)} to ${percent(change.high)}`) : null),
    make("div", { class: "change-story" },
      make("a", { href: methodLink(method, metric), class: "change-name" }, beside ? metric : [methodName(method), make("span", { class: "muted" }, ` · ${metric}`)]),
      make("p", {},
        make("span", { class: `badge ${change.status === "confirmed" ? "sure" : "open"}` }, change.status),
        change.is_recent ? make("span", { class: "badge recent" }, "recent") : null,
        ` since ${change.night}`, change.text ? `, ${change.text}` : ""),
      change.culprit ? make("p", {}, "Introduced by ", change.culprit.repository ? `${change.culprit.repository} ` : null, make("code", {}, String(change.culprit.commit).slice(0, 12)), ` ${change.culprit.subject || ""}`,
        change.culprit.author ? make("span", { class: "muted" }, `, ${change.culprit.author}`) : null) : null,
      !change.culprit && change.commits && change.commits.length ? make("p", {}, "Between ", change.commits.map((text, i) => [i ? ", " : "", make("code", {}, text)])) : null,
      change.environment && change.environment.length ? make("p", { class: "cut-text" }, `Changed with it: ${change.environment.join(", ")}`) : null,
      change.machine_suspect ? make("p", { class: "warn-text" }, "Other methods of this machine changed in the same night: suspect the machine first.") : null),
    picture);
}

/** What was left out of the page to keep it small, at its end. */
function showLeftOut() {
  const list = report.left_out || [];
  byId("left-out").hidden = !list.length;
  const texts = isLive() ? list : [`Left out to keep this page below 1 MB: ${list.join(", ")}. `
    + "A report of fewer nights (--nights) has more; perfrun serve has all of it."];
  refill(byId("left-out"), texts.map((text) => make("p", {}, text)));
}

function showVersus() {
  const tables = report.versus || [];
  byId("versus").hidden = !tables.length;
  refill(byId("versus-list"), tables.map((table) => {
    const sides = [...new Set(table.rows.flatMap((row) => row.sides.map((side) => side.name)))];
    const rows = () => [["What", "Metric", ...sides], ...table.rows.map((row) => [row.what, row.metric, ...sides.map((name) => {
      const side = row.sides.find((item) => item.name === name);
      if (!side) return "–";
      return digits(side.value) + (isNumber(side.low) && isNumber(side.high) ? ` (${digits(side.low)} to ${digits(side.high)})` : "");
    })])];
    return figure(table.title, versusChart(table), rows);
  }));
}
