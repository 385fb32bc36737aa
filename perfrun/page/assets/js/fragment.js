"use strict";
// The state of the view. All of it stands in the page's #fragment, so that a link shows what its sender saw.

const DEFAULTS = {
  q: "", //        text searched for in the table
  show: "all", //  which methods: all, worse, better, failed, noisy
  env: "", //      one environment only
  sort: "", //     column, with "-" before it for descending; empty: what needs attention first
  m: "", //        the method that is open
  metric: "", //   its metric
  from: "", //     the range of its history, as days
  to: "",
  axis: "data", // "data" or "zero"
  theme: "auto", //"auto", "light" or "dark"
};

const view = { ...DEFAULTS };

function readFragment() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(DEFAULTS)) view[key] = (given.get(key) ?? DEFAULTS[key]).slice(0, 2000);
  if (!["data", "zero"].includes(view.axis)) view.axis = "data";
  if (!["auto", "light", "dark"].includes(view.theme)) view.theme = "auto";
}

function fragment(changed) {
  const said = new URLSearchParams();
  for (const [key, value] of Object.entries({ ...view, ...changed })) {
    if (value !== DEFAULTS[key] && value !== "") said.set(key, value);
  }
  return `#${said}`;
}

/** Change the state in place: no step in the browser's history. */
function setView(changed) {
  Object.assign(view, changed);
  try {
    window.history.replaceState(null, "", fragment({}));
  } catch {
    // A browser limits how often this may be called, and a page inside another may not call it at all.
  }
}

/** Change the state as following a link does: "back" comes back. */
function goTo(changed) {
  location.hash = fragment(changed);
}

/** The fragment that opens a method; its range and metric begin anew. */
function methodLink(method, metric) {
  return fragment({ m: methodKey(method), metric: metric || "", from: "", to: "" });
}

function seconds(text) {
  const time = /^\d{4}-\d{2}-\d{2}/.test(text) ? Date.parse(text.length === 10 ? text : `${text}Z`) : NaN;
  return Number.isNaN(time) ? null : time / 1000;
}

/** The theme is an attribute of the root; without one the system's choice holds. */
function applyTheme() {
  if (view.theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", view.theme);
  for (const button of document.querySelectorAll("#theme button")) {
    button.setAttribute("aria-pressed", String(button.dataset.theme === view.theme));
  }
}
