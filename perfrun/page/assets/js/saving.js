"use strict";
// What leaves the page: charts as SVG and PNG, the table as CSV, text to the clipboard. Only data: URLs, no blob:.

const SAVED_STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "font-size",
  "font-weight", "font-family", "text-anchor", "stroke-linecap", "stroke-linejoin", "dominant-baseline"];

/** The text of a chart as a file of its own: the style sheet's rules become attributes, a background is added. */
function svgText(svg) {
  const copy = svg.cloneNode(true);
  const originals = svg.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((element, i) => {
    const style = getComputedStyle(originals[i]);
    for (const name of SAVED_STYLES) {
      const value = style.getPropertyValue(name);
      if (value && value !== "normal") element.setAttribute(name, value.replaceAll('"', "'"));
    }
    element.removeAttribute("class");
    element.removeAttribute("style");
  });
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  for (const [name, value] of [["width", width], ["height", height], ["xmlns", SVG]]) copy.setAttribute(name, value);
  for (const name of ["class", "style"]) copy.removeAttribute(name);
  copy.prepend(draw("rect", { width, height, fill: colour("panel") }));
  return new XMLSerializer().serializeToString(copy);
}

function svgAddress(svg) {
  return `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(svg))}`;
}

async function pngAddress(svg) {
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const image = new Image();
  image.src = svgAddress(svg);
  await image.decode();
  const canvas = make("canvas", { width: width * 2, height: height * 2 });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
}

function download(address, name) {
  make("a", { href: address, download: name }).click();
}

/** A name for a file: letters, digits, dot, dash and underscore of a text from outside. */
function fileName(text, ending) {
  return `${text.replace(/[^A-Za-z0-9._-]+/g, "_").replace(/^[._]+/, "").slice(-100) || "chart"}.${ending}`;
}

/** The two buttons of a chart; `picture` gives the SVG, made in place or when asked. */
function saveButtons(name, picture) {
  const button = (ending, save) => make("button", {
    type: "button", class: "quiet", title: `Save this chart as ${ending.toUpperCase()}`,
    "aria-label": `Save “${name}” as ${ending.toUpperCase()}`, onclick: save,
  }, ending.toUpperCase());
  return make("span", { class: "save" },
    button("svg", () => withPicture(picture, (svg) => download(svgAddress(svg), fileName(name, "svg")))),
    button("png", () => withPicture(picture, async (svg) => download(await pngAddress(svg), fileName(name, "png")))));
}

/** Computed styles exist only inside the page: a picture made for saving is put there for that moment. */
async function withPicture(picture, use) {
  const svg = picture();
  const lent = !svg.isConnected;
  if (lent) byId("darkroom").append(svg);
  try {
    await use(svg);
  } finally {
    if (lent) svg.remove();
  }
}

function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  // A spreadsheet takes a text that begins like this for a formula.
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function saveCsv(rows, name) {
  const text = rows.map((row) => row.map(csvCell).join(",")).join("\r\n");
  download(`data:text/csv;charset=utf-8,${encodeURIComponent(`${text}\r\n`)}`, name);
}

/** Copy a text and say so on the button that was pressed. */
async function copyText(text, button) {
  const before = button.textContent;
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = make("textarea", { "aria-hidden": "true" });
    field.value = text;
    byId("darkroom").append(field);
    field.select();
    done = document.execCommand("copy");
    field.remove();
  }
  button.textContent = done ? "Copied" : "Not copied";
  announce(button.textContent);
  setTimeout(() => { button.textContent = before; }, 1500);
}

function copyButton(label, text) {
  return make("button", {
    type: "button", class: "quiet", onclick: (event) => copyText(text(), event.currentTarget),
  }, label);
}
