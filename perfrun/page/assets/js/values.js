"use strict";
// Numbers and times: unpacked from the report's data, and written for people.

const MISSING = 65535;
const unpacked = new WeakMap();

/** The numbers of a packed list (null where one is missing), or null where there is no list. */
function unpack(packed) {
  if (Number.isInteger(packed)) packed = (report.shared || [])[packed];
  if (!packed || typeof packed !== "object") return null;
  let values = unpacked.get(packed);
  if (!values) {
    values = [];
    const text = atob(packed.b64 || "");
    for (let i = 0; i + 1 < text.length; i += 2) {
      const q = text.charCodeAt(i) | (text.charCodeAt(i + 1) << 8);
      values.push(q === MISSING ? null : packed.min + q * packed.step);
    }
    unpacked.set(packed, values);
  }
  return values;
}

function unpackBytes(text) {
  return text ? Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)) : null;
}

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** The unit in which values up to `most` are read best: its factor and its name. */
function scaleFor(unit, most) {
  const size = Math.abs(most) || 0;
  const pick = (steps) => steps.find(([factor]) => size >= factor) || steps[steps.length - 1];
  if (unit === "s") {
    if (size >= 7200) return { factor: 3600, name: "h" };
    if (size >= 300) return { factor: 60, name: "min" };
    const [factor, name] = pick([[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]);
    return { factor, name };
  }
  if (unit === "bytes" || unit === "B") {
    const [factor, name] = pick([[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]);
    return { factor, name };
  }
  const name = unit === "1" || !unit ? "" : unit;
  if (size >= 1e4) {
    const [factor, prefix] = pick([[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]);
    return { factor, name: name ? `${prefix} ${name}` : prefix };
  }
  return { factor: 1, name };
}

function digits(value, figures = 4) {
  if (!isNumber(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(figures - 1);
  const places = Math.max(0, figures - 1 - Math.floor(Math.log10(size)));
  return value.toFixed(Math.min(places, 8));
}

/** A value with its unit. */
function withUnit(value, unit, figures = 4) {
  if (!isNumber(value)) return "–";
  const scale = scaleFor(unit, value);
  const text = digits(value / scale.factor, figures);
  return scale.name ? `${text} ${scale.name}` : text;
}

/** A ratio as a difference in percent, with its sign. */
function percent(ratio) {
  if (!isNumber(ratio)) return "–";
  const value = (ratio - 1) * 100;
  if (Math.abs(value) >= 900) return `×${digits(ratio, 3)}`;
  const text = Math.abs(value).toFixed(Math.abs(value) >= 99.95 ? 0 : 1);
  if (Number(text) === 0) return "0.0 %";
  return `${value > 0 ? "+" : "−"}${text} %`;
}

function share(value) {
  if (!isNumber(value)) return "–";
  return `${(value * 100).toFixed(value < 0.0995 ? 1 : 0)} %`;
}

function count(number, one, many) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many || `${one}s`}`;
}

function iso(seconds) {
  const time = new Date(seconds * 1000);
  return isNumber(seconds) && !Number.isNaN(time.getTime()) ? time.toISOString() : "";
}

function day(seconds) {
  return iso(seconds).slice(0, 10) || "–";
}

function minute(seconds) {
  const text = iso(seconds);
  return text ? `${text.slice(0, 10)} ${text.slice(11, 16)} UTC` : "–";
}

/** How long ago a time was. */
function ago(seconds) {
  if (!isNumber(seconds)) return "–";
  const past = Date.now() / 1000 - seconds;
  if (past < 90) return "just now";
  for (const [size, name] of [[86400, "day"], [3600, "hour"], [60, "minute"]]) {
    if (past >= size * 1.5 || size === 60) return `${count(Math.round(past / size), name)} ago`;
  }
  return "just now";
}

function median(values) {
  const sorted = values.filter(isNumber).sort((a, b) => a - b);
  if (!sorted.length) return null;
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

function extent(...lists) {
  let low = Infinity;
  let high = -Infinity;
  for (const list of lists) {
    for (const value of list || []) {
      if (!isNumber(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : null;
}

/** Round values at even distances that cover a range. */
function ticks(low, high, wanted = 5) {
  const rough = (high - low) / wanted;
  if (!(rough > 0) || !isNumber(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(k * step);
  return found;
}

/** Labels of ticks, all with as many places as the distance between them needs. */
function tickLabels(values, factor) {
  const step = values.length > 1 ? Math.abs(values[1] - values[0]) / factor : 1;
  const places = Math.min(8, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9) + (needsHalf(step) ? 1 : 0)));
  return values.map((value) => (value / factor).toFixed(places));
}

function needsHalf(step) {
  const lead = step / 10 ** Math.floor(Math.log10(step) + 1e-9);
  return Math.abs(lead - 2.5) < 1e-6;
}

/** Beginnings of days, months or years in a range of seconds, with their labels. */
function timeTicks(from, to, wanted = 6) {
  const days = (to - from) / 86400;
  const monthsApart = [1, 2, 3, 6, 12, 24, 60, 120].find((n) => days / 30.4 / n <= wanted) || 240;
  const found = [];
  if (days < wanted * 20) {
    const apart = [1, 2, 7, 14].find((n) => days / n <= wanted) || 28;
    const step = apart * 86400;
    if (days < 2) return hourTicks(from, to, wanted);
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) found.push([t, iso(t).slice(5, 10)]);
    return found;
  }
  const start = new Date(from * 1000);
  let month = Math.floor((start.getUTCFullYear() * 12 + start.getUTCMonth()) / monthsApart) * monthsApart;
  for (; found.length < 60; month += monthsApart) {
    const t = Date.UTC(Math.floor(month / 12), month % 12, 1) / 1000;
    if (t > to) break;
    if (t >= from) found.push([t, monthsApart >= 12 ? iso(t).slice(0, 4) : iso(t).slice(0, 7)]);
  }
  return found;
}

function hourTicks(from, to, wanted) {
  const apart = [60, 300, 900, 1800, 3600, 10800, 21600, 43200].find((n) => (to - from) / n <= wanted) || 86400;
  const found = [];
  for (let t = Math.ceil(from / apart) * apart; t <= to; t += apart) found.push([t, iso(t).slice(11, 16)]);
  return found;
}
