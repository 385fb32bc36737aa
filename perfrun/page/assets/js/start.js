"use strict";
// The page as a whole: read the data and the fragment, show, and listen.

let report = null;
const LIVE_PAUSE = 2000;

function readReport(given) {
  report = given;
  for (const list of ["methods", "series", "changes", "commits", "machines"]) if (!Array.isArray(report[list])) report[list] = [];
}

function showOverview() {
  showHeading();
  showOutcomes();
  showWarnings();
  showChanges();
  showFleet();
  showVersus();
  showLeftOut();
}

let shownMethod = null;

/** Show what the fragment says: the overview or one method. */
function showView() {
  applyTheme();
  const method = view.m ? findMethod(view.m) : null;
  byId("overview").hidden = Boolean(method);
  byId("method").hidden = !method;
  byId("unknown").hidden = !view.m || Boolean(method);
  document.title = method ? `${shortName(method.name)} · ${report.title || "Benchmark report"}` : report.title || "Benchmark report";
  if (byId("search").value !== view.q) byId("search").value = view.q;
  if (method) showMethod(method);
  else showTable();
  if (method && method !== shownMethod) {
    window.scrollTo(0, 0);
    byId("method-title").focus({ preventScroll: true });
  }
  shownMethod = method;
}

function listen() {
  window.addEventListener("hashchange", () => {
    const before = { ...view };
    readFragment();
    if (Object.keys(view).some((key) => view[key] !== before[key])) showView();
  });
  byId("search").addEventListener("input", (event) => {
    setView({ q: event.target.value });
    showTable();
    announce(byId("found").textContent);
  });
  byId("environments").addEventListener("change", (event) => {
    setView({ env: event.target.value });
    showTable();
  });
  byId("csv").addEventListener("click", saveTable);
  for (const button of document.querySelectorAll("#theme button")) {
    button.addEventListener("click", () => {
      setView({ theme: button.dataset.theme });
      applyTheme();
      if (openChart) openChart.redraw();
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => openChart && openChart.redraw());
  byId("link").addEventListener("click", (event) => copyText(location.href, event.currentTarget));
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !view.m) {
      event.preventDefault();
      byId("search").focus();
    }
  });
  listenToPrinter();
}

/** On paper all charts are there, and a history is a drawing in the colours of paper, not a picture of the screen. */
function listenToPrinter() {
  window.addEventListener("beforeprint", () => {
    showAllNow();
    if (openChart && !openChart.element.querySelector(".on-paper")) {
      openChart.element.append(make("div", { class: "on-paper" }, openChart.svg()));
    }
  });
  window.addEventListener("afterprint", () => document.querySelectorAll(".on-paper").forEach((element) => element.remove()));
}

/** A series of the served page may come when it is wanted. */
async function fetched(series) {
  if (series.value || !series.href || !isLive()) return;
  const answer = await fetch(series.href, { headers: { Accept: "application/json" } });
  if (answer.ok) Object.assign(series, await answer.json());
}

function isLive() {
  return document.body.hasAttribute("data-live");
}

/** The served page follows the store: new results have it fetch the data again, not more often than every two seconds. */
function followServer() {
  const light = byId("live");
  light.hidden = false;
  const say = (text, kind) => {
    light.className = `live ${kind}`;
    light.textContent = text;
    light.title = text;
  };
  const events = new EventSource("/api/events");
  let timer = 0;
  const renew = () => {
    if (!timer) timer = setTimeout(fetchAgain, LIVE_PAUSE);
  };
  const fetchAgain = async () => {
    timer = 0;
    try {
      const answer = await fetch("/api/page", { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(String(answer.status));
      const renewed = await answer.json();
      const open = shownMethod;
      const whole = open && open.isWhole ? await partOf(open).catch(() => null) : null;
      readReport(renewed);
      const again = open && report.methods.find((method) => method.href === open.href);
      if (whole && again) takeIn(again, whole);
      showOverview();
      renewView();
      announce("The page has new results.");
    } catch {
      say("no answer from the server", "off");
    }
  };
  events.addEventListener("open", () => say("live", "on"));
  events.addEventListener("error", () => say("reconnecting", "off"));
  for (const name of ["message", "index"]) events.addEventListener(name, renew);
  events.addEventListener("trial", (event) => {
    const trial = toldBy(event);
    say(trial.state === "started" ? `live: ${shortName(String(trial.method || ""))} runs` : "live", "on");
  });
  const runs = new Map();
  events.addEventListener("run", (event) => {
    const run = toldBy(event);
    runs.delete(run.run_id);
    if (run.state === "running") runs.set(run.run_id, run);
    say(progressOf([...runs.values()].pop()), "on");
  });
  events.addEventListener("store", (event) => {
    const store = toldBy(event);
    if (store.state === "gone") say(String(store.text || "the store is gone"), "off");
    else renew();
  });
  setInterval(showHeading, 60000);
}

/** What a run does, in a line. How many trials it will have is not known: it plans them round by round. */
function progressOf(run) {
  if (!run) return "live";
  const trial = Array.isArray(run.now) ? run.now[run.now.length - 1] : null; // the one before may still be written
  const now = trial ? `${shortName(String(trial.method))} runs` : "a run goes on";
  return isNumber(run.finished) ? `${now}, ${count(run.finished, "trial")} done` : now;
}

function toldBy(event) {
  try {
    return JSON.parse(event.data) || {};
  } catch {
    return {};
  }
}

/** New data leaves the reader where they are: the place on the page and the focus stay. */
function renewView() {
  const { scrollX, scrollY } = window;
  const focused = document.activeElement && document.activeElement.id;
  shownMethod = view.m ? findMethod(view.m) : null;
  showView();
  if (focused && byId(focused)) byId(focused).focus({ preventScroll: true });
  window.scrollTo(scrollX, scrollY);
}

function start() {
  readReport(JSON.parse(byId("data").textContent));
  readFragment();
  showOverview();
  showView();
  listen();
  document.documentElement.classList.add("ready");
  performance.mark("perfrun-ready");
  if (isLive()) followServer();
}

// All parts of the script are read before the start, in whatever order they were joined.
queueMicrotask(start);
