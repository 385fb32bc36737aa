"use strict";
// The served page has what its first screen shows; all of a method comes when it is opened.

/** Ask for all of a method: a report of its own, with this method only. */
async function partOf(method) {
  const answer = await fetch(method.href, { headers: { Accept: "application/json" } });
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Error(said.error || `the server answers ${answer.status}`);
  }
  return answer.json();
}

/** Complete the method that is shown, once; the reader stays where they are. */
async function complete(method) {
  if (!method.href || method.isWhole || method.isAsked) return;
  method.isAsked = true;
  const of = report;
  let part = null;
  let why = "";
  try {
    part = await partOf(method);
  } catch (error) {
    why = error.message;
  }
  method.isAsked = false;
  if (report !== of) return; // there are new results, and their page asks anew
  if (part) takeIn(method, part);
  if (findMethod(view.m) !== method) return;
  if (part) renewView();
  else if (byId("coming")) byId("coming").textContent = `The details of this method cannot be shown: ${why}`;
}

/** Put all of a method into the report: its series, changes and pairs, and its newest trial. */
function takeIn(method, part) {
  const own = part.methods && part.methods[0];
  method.isWhole = true;
  if (!own) return; // all its trials have gone
  const begin = report.series.length;
  const place = (at) => (Number.isInteger(at) ? begin + at : null);
  const index = report.methods.indexOf(method);
  for (const series of part.series) {
    for (const name of ["time", "value", "low", "high", "commit"]) {
      if (Number.isInteger(series[name])) series[name] = part.shared[series[name]];
    }
    report.series.push({ ...series, method: index, commits: part.commits });
  }
  Object.assign(method, { main: place(own.main), series: own.series.map(place) });
  report.details = report.details || [];
  if (Number.isInteger(own.detail)) method.detail = report.details.push(part.details[own.detail]) - 1;
  report.pairs = [...(report.pairs || []), ...part.pairs.map((pairs) => ({ ...pairs, series: place(pairs.series) }))];
  const of = report.changes.filter((change) => change.method === index);
  report.further = report.further || []; // changes of metrics that the page has no room for
  for (const change of part.changes) {
    const known = of.find((one) => one.metric === change.metric && one.night === change.night && one.direction === change.direction);
    const placed = { ...change, method: index, series: place(change.series) };
    if (placed.series === null) continue; // it is drawn nowhere here, and has its place already
    if (known) Object.assign(known, { series: placed.series, at: placed.at });
    else report.further.push(placed);
  }
  changesBySeries = null;
}
