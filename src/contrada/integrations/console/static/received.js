// The events of one subscription of the receiver: their attributes, plots, counts and exports.
import { exact } from "./requests.js";

export const KEPT = 10_000;  // Events of a subscription. Beyond it: the oldest are left out.
const NEWEST = 100;  // Events whose names of attributes are noted at a time.
const NAMES_MAX = 1_000;  // Names of attributes that are offered. Beyond it: others can be typed.
const INNER_MAX = 1_000;  // Values of one body inside arrays. Beyond it: the first ones.
const MARK = "@is.";
const JSON_TYPE = /^application\/(.+\+)?json\b/;
const FORMULA = /^[=+\-@\t\r]/;  // A text with this beginning is a formula for a spreadsheet.

/** What has been received; `version` grows with each change. */
export class Received {
  constructor() {
    this.events = [];
    this.count = 0;
    this.repeated = 0;
    this.dropped = {};
    this.names = new Set();
    this.last = "";
    this.state = "connecting";
    this.version = 0;
  }

  become(state) {
    this.state = state;
    this.version += 1;
  }

  add({ name, data, id }) {
    this.version += 1;
    if (name === "dropped") {
      for (const [reason, count] of Object.entries(JSON.parse(data))) {
        this.dropped[reason] = (this.dropped[reason] || 0) + count;
      }
    } else if (name === "open") {
      this.state = "connected";
    } else if (name === "message") {
      // An unacknowledged record is delivered again, with its position.
      if (id && Number(id) <= Number(this.last)) this.repeated += 1;
      else this.last = id;
      this.count += 1;
      this.events.push({ number: this.count, at: Date.now(), position: id, text: data });
      if (this.events.length >= 2 * KEPT) this.events = this.events.slice(-KEPT);
    }
  }

  noteNames() {
    for (const event of this.events.slice(-NEWEST)) {
      for (const name of Object.keys(attributesOf(event))) {
        if (this.names.size < NAMES_MAX) this.names.add(name);
      }
    }
  }
}

/** Returns the notifications of an event: one, or those of a match in their order. */
export function partsOf(event) {
  const found = JSON.parse(event.text, exact);
  return (Array.isArray(found) ? found : [found]).map(each => each.notification);
}

export function timeText(us) {
  if (us === undefined) return "";
  const whole = BigInt(us.rawJSON ?? us), rest = ((whole % 1000n) + 1000n) % 1000n;
  const text = new Date(Number((whole - rest) / 1000n)).toISOString();
  return text.replace("Z", `${String(rest).padStart(3, "0")}Z`);
}

/** Returns the names of the types of a typed event, the nearest first. */
export function typesOf(part) {
  const marks = Object.keys(part.attributes).filter(name => name.startsWith(MARK));
  return marks.map(name => name.slice(MARK.length)).filter(name => !name.startsWith("by("));
}

/** Returns `{text}` of a body, or `{hex}` if it is no UTF-8. */
export function bodyOf(part) {
  const hex = part.body || "";
  const bytes = Uint8Array.from(hex.match(/../g) || [], pair => parseInt(pair, 16));
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(bytes), size: bytes.length };
  } catch {
    return { hex, size: bytes.length };
  }
}

/** Returns the content of a JSON body; undefined for others. */
export function contentOf(part) {
  if (!part.body || !JSON_TYPE.test(part.content_type)) return undefined;
  try {
    return JSON.parse(bodyOf(part).text, exact);
  } catch {
    return undefined;
  }
}

const isWithin = value => value !== null && typeof value === "object" && value.rawJSON === undefined;

/** Adds the values inside arrays of objects, which are no attributes, as `$body.items[].price`. */
function addInner(value, path, isInner, found) {
  if (Array.isArray(value)) {
    const isDeep = isInner || value.some(isWithin);
    for (const each of value) addInner(each, `${path}[]`, isDeep, found);
  } else if (isWithin(value)) {
    for (const [name, each] of Object.entries(value)) addInner(each, `${path}.${name}`, isInner, found);
  } else if (isInner && found.size < INNER_MAX) {
    found.set(path, [...(found.get(path) || []), value]);
  }
}

function membersOf(part) {
  const { id, publisher, time_us } = part.envelope, types = typesOf(part), inner = new Map();
  addInner(contentOf(part), "$body", false, inner);
  return {
    __proto__: null,  // Else an event without an attribute of this name would have one.
    ...part.attributes, ...Object.fromEntries(inner),
    ...(types.length && { "@types": types.join(" < ") }),
    "@id": id, "@publisher": publisher, "@time": timeText(time_us),
  };
}

/** Returns the attributes and the envelope, for a match with the number of each notification. */
export function attributesOf(event) {
  if (!event.attributes) {
    const parts = partsOf(event), isMatch = event.text.startsWith("[");
    event.attributes = isMatch
      ? Object.fromEntries(parts.flatMap((part, at) => Object.entries(membersOf(part)).map(
        ([name, value]) => [`${at + 1}: ${name}`, value])))
      : membersOf(parts[0]);
  }
  return event.attributes;
}

/** Returns the line of an event in the table: of a match with the time of each notification. */
export function lineOf(event) {
  if (event.line === undefined) {
    const parts = partsOf(event), isMatch = event.text.startsWith("[");
    event.line = parts.map(part => `${isMatch ? `${timeText(part.envelope.time_us).slice(11, 23)} ` : ""}${
      JSON.stringify(part.attributes)}`).join(" -> ");
  }
  return event.line;
}

export const shown = value => typeof value === "string" ? value : JSON.stringify(value);

function numbersIn(value) {
  const several = Array.isArray(value) ? value : [value];
  return several.map(each => Number(each?.rawJSON ?? (typeof each === "number" ? each : NaN)))
    .filter(Number.isFinite);
}

/** Returns the times of arrival and the numbers of an attribute; several of an event are points. */
export function pointsOf(events, name) {
  const times = [], numbers = [];
  for (const event of events) {
    for (const number of numbersIn(attributesOf(event)[name])) {
      times.push(event.at / 1000);
      numbers.push(number);
    }
  }
  return [times, numbers];
}

/** Returns the values of an attribute and their counts, the most frequent first. */
export function countsOf(events, name) {
  const counts = new Map();
  for (const event of events) {
    const value = attributesOf(event)[name];
    for (const each of value === undefined ? [] : Array.isArray(value) ? value : [value]) {
      counts.set(shown(each), (counts.get(shown(each)) || 0) + 1);
    }
  }
  return [...counts].sort((a, b) => b[1] - a[1]);
}

export const toJsonLines = events => events.map(each => `${each.text}\n`).join("");

export function toCsv(events) {
  const names = [...new Set(events.flatMap(each => Object.keys(attributesOf(each))))];
  const cell = value => {
    if (value === undefined || value === null) return "";
    const text = typeof value === "string" && FORMULA.test(value) ? `'${value}` : shown(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const rows = events.map(each => names.map(name => cell(attributesOf(each)[name])));
  return [names.map(cell), ...rows].map(each => each.join(",")).join("\r\n") + "\r\n";
}
