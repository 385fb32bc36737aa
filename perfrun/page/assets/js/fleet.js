"use strict";
// The newest submissions: how far they are, what failed and why, their machines, and the results of a sweep.

function showFleet() {
  const list = report.fleet || [];
  byId("fleet").hidden = !list.length;
  const open = new Set([...byId("submissions").querySelectorAll("details")].filter((one) => one.open).map((one) => one.dataset.id));
  const isFirst = !byId("submissions").children.length; // later it is the reader's choice
  refill(byId("submissions"), list.map((one, at) => submission(one, isFirst ? at === 0 : open.has(one.submission))));
}

function submission(one, isOpen) {
  const states = Object.entries(one.states).filter(([, number]) => number > 0);
  const done = one.states.done || 0;
  return make("details", { class: `submission ${one.is_good ? "fine" : "open"}`, "data-id": one.submission, open: isOpen },
    make("summary", {},
      make("b", { class: "submission-name" }, one.submission),
      make("span", {}, states.length ? ` ${done} of ${count(one.shards, "shard")} done` : ` ${count(one.shards, "shard")}`),
      one.left ? make("span", {}, `, ${one.left}`) : null),
    make("p", { class: "muted" }, `${one.suite} on ${one.engine}, submitted ${minute(one.created)}`),
    states.length ? [
      outcomeBar(states),
      make("ul", { class: "legend" }, states.map(([name, number]) =>
        make("li", {}, make("i", { class: `swatch outcome-${outcomeKind(name)}` }), `${name} `, make("b", {}, number.toLocaleString("en"))))),
    ] : null,
    one.notes.map((text) => make("p", { class: "muted" }, text)),
    one.tables.map((table) => make("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": `${table.title} of ${one.submission}` },
      plainTable(table.title, table.headings, table.rows))));
}
