"use strict";
// Elements made from plain values. All texts of a report come from outside: they reach the page as text nodes and
// attributes only, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element; `properties` are attributes, `on...` functions are listeners, `style` is an object. */
function make(tag, properties, ...children) {
  return furnish(document.createElement(tag), properties, children);
}

/** An element of SVG. */
function draw(tag, properties, ...children) {
  return furnish(document.createElementNS(SVG, tag), properties, children);
}

function furnish(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") Object.assign(element.style, value);
    else if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Put children in place of what an element held. */
function refill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

function byId(id) {
  return document.getElementById(id);
}

/** The colour that a variable of the style sheet has in the present theme, as canvas and saved files need it. */
function colour(name) {
  const probe = byId("probe");
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/** Tell a screen reader. */
function announce(text) {
  byId("announcement").textContent = text;
}

/** Call `show` when an element comes near the visible part of the page; `showAllNow` (printing) does not wait. */
const waiting = new Map();
let watcher = null;

function whenSeen(element, show) {
  if (!watcher) {
    watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) showWaiting(entry.target);
    }, { rootMargin: "300px" });
  }
  waiting.set(element, show);
  watcher.observe(element);
}

function showWaiting(element) {
  const show = waiting.get(element);
  waiting.delete(element);
  watcher.unobserve(element);
  if (show) show();
}

function showAllNow() {
  for (const element of [...waiting.keys()]) showWaiting(element);
}

/** Forget elements that left the page before they were seen. */
function forgetUnseen() {
  for (const element of [...waiting.keys()]) {
    if (element.isConnected) continue;
    waiting.delete(element);
    watcher.unobserve(element);
  }
}
