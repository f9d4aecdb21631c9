// The values of attributes, and their JSON: exact integers, bytes, times and infinite numbers.
import { InvalidValueError } from "./errors.js";

const INT_MIN = -(2n ** 63n);
const INT_MAX = 2n ** 63n - 1n;
const TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(Z|[+-]\d\d:\d\d)$/;
const TIME_MIN_US = -62_135_596_800_000_000n; // The year 1.
const TIME_MAX_US = 253_402_300_799_999_999n; // The end of the year 9999.
const NUMBERS = new Map([["NaN", NaN], ["Infinity", Infinity], ["-Infinity", -Infinity]]);
const LONE_SURROGATE = /\p{Surrogate}/u;
const EXACT_DIGITS = 16; // Integers of fewer digits are exact in a number.
const LONG = /\d{16}/;
const NUMBER = /-?\d+(\.\d+)?([eE][+-]?\d+)?/g;
const INTEGER = "$integer";

/** A moment to the microsecond, in UTC: a `Date` has milliseconds only. */
export class Time {
  private constructor(
    /** Microseconds since 1970. */
    readonly us: bigint,
  ) {}

  /** Returns the time of microseconds since 1970, a `Date`, or a text of ISO 8601 with its zone. */
  static of(given: bigint | Date | string): Time {
    const us = typeof given === "bigint" ? given
      : typeof given === "string" ? microseconds(given) : millisecondsOf(given) * 1000n;
    if (us < TIME_MIN_US || us > TIME_MAX_US) {
      throw new InvalidValueError(given, "expected a time of the years 1 to 9999");
    }
    return new Time(us);
  }

  /** Returns the time as a `Date`, without its microseconds. */
  toDate(): Date {
    return new Date(Number((this.us - mod(this.us, 1000n)) / 1000n));
  }

  /** Returns the text of ISO 8601, with six digits of the second or none. */
  toString(): string {
    const rest = mod(this.us, 1_000_000n);
    const seconds = new Date(Number((this.us - rest) / 1000n)).toISOString().slice(0, 19);
    return rest === 0n ? `${seconds}Z` : `${seconds}.${String(rest).padStart(6, "0")}Z`;
  }

  toJSON(): string {
    return this.toString();
  }
}

/** A value of an attribute. Integers beyond 2^53 are `bigint`. */
export type Value = string | number | bigint | boolean | null | Uint8Array | Time;

/** The value of an attribute, or its several values. */
export type Values = Value | readonly Value[];

/** The attributes of a notification, by name. */
export type Attributes = { readonly [name: string]: Values };

function mod(of: bigint, by: bigint): bigint {
  return ((of % by) + by) % by;
}

function millisecondsOf(date: Date): bigint {
  const ms = date.getTime();
  if (Number.isNaN(ms)) throw new InvalidValueError(date, "expected a valid Date");
  return BigInt(ms);
}

function microseconds(text: string): bigint {
  const [, seconds, fraction = "", zone] = TIME.exec(text) ?? [];
  // `Date` takes the 30th of February, and hour 24, for the next day.
  const shown = new Date(`${seconds}Z`);
  const ms = Date.parse(`${seconds}${zone}`);
  if (Number.isNaN(ms) || shown.toISOString().slice(0, 19) !== seconds) {
    throw new InvalidValueError(text, "expected a time as 2026-11-20T09:30:00Z");
  }
  return BigInt(ms) * 1000n + BigInt(fraction.padEnd(6, "0"));
}

function encodeNumber(value: number): string {
  if (!Number.isFinite(value)) return `{"$number":"${value}"}`;
  // Without an exponent it would be read as an integer, which may have more than 64 bits.
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) return value.toExponential();
  return String(value);
}

export function encodeText(value: string): string {
  if (LONE_SURROGATE.test(value)) {
    throw new InvalidValueError(value, "a lone surrogate is not text");
  }
  return JSON.stringify(value);
}

export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, each => each.toString(16).padStart(2, "0")).join("");
}

export function fromHex(text: string): Uint8Array {
  if (text.length % 2 || /[^0-9a-fA-F]/.test(text)) {
    throw new InvalidValueError(text, "expected bytes as pairs of hexadecimal digits");
  }
  const bytes = new Uint8Array(text.length / 2);
  for (let at = 0; at < bytes.length; at++) bytes[at] = parseInt(text.slice(2 * at, 2 * at + 2), 16);
  return bytes;
}

function encodeValue(name: string, value: unknown): string {
  switch (typeof value) {
    case "string":
      return encodeText(value);
    case "number":
      return encodeNumber(value);
    case "boolean":
      return String(value);
    case "bigint":
      if (value < INT_MIN || value > INT_MAX) {
        throw new InvalidValueError(value, `attribute ${name}: expected an integer of 64 bits`);
      }
      return String(value);
    case "object":
      if (value === null) return "null";
      if (value instanceof Uint8Array) return `{"$bytes":"${toHex(value)}"}`;
      if (value instanceof Time) return `{"$time":"${value}"}`;
      if (value instanceof Date) return `{"$time":"${Time.of(value)}"}`;
  }
  const found = typeof value === "object" ? Object.prototype.toString.call(value) : typeof value;
  const expected = "string, number, bigint, boolean, null, Uint8Array, Time, Date or an array of these";
  throw new InvalidValueError(value, `attribute ${name}: found ${found}, expected ${expected}`);
}

/** Returns attributes as JSON. Throws InvalidValueError. */
export function encodeAttributes(attributes: object): string {
  if (typeof attributes !== "object" || attributes === null || Array.isArray(attributes)) {
    throw new InvalidValueError(attributes, "expected an object of attributes");
  }
  const members = Object.entries(attributes).map(([name, values]) => {
    const shown = Array.isArray(values)
      ? `[${values.map(each => encodeValue(name, each)).join(",")}]` : encodeValue(name, values);
    return `${encodeText(name)}:${shown}`;
  });
  return `{${members.join(",")}}`;
}

/** Returns the position after a text of JSON that begins with the quote at `begin`. */
function endOfText(text: string, begin: number): number {
  for (let end = begin; ;) {
    end = text.indexOf('"', end + 1);
    if (end < 0) return text.length;
    let slash = end;
    while (text[slash - 1] === "\\") slash--;
    if ((end - slash) % 2 === 0) return end + 1;
  }
}

function markInteger(token: string, fraction?: string, exponent?: string): string {
  const isLong = token.length >= EXACT_DIGITS && !fraction && !exponent;
  return isLong ? `{"${INTEGER}":"${token}"}` : token;
}

/** Parses JSON in which long integers are exact: `decodeInteger` reads them. */
export function parseExact(text: string): unknown {
  if (!LONG.test(text)) return JSON.parse(text);
  // Digits inside of texts stay. One expression for texts would overflow the stack at many escapes.
  const parts: string[] = [];
  for (let at = 0; at < text.length;) {
    const found = text.indexOf('"', at), begin = found < 0 ? text.length : found;
    const end = found < 0 ? begin : endOfText(text, begin);
    parts.push(text.slice(at, begin).replace(NUMBER, markInteger), text.slice(begin, end));
    at = end;
  }
  return JSON.parse(parts.join(""));
}

/** Returns a number of `parseExact`, as `bigint` where a number would round it. */
export function decodeInteger(found: unknown): number | bigint {
  if (typeof found === "number") return found;
  const exact = BigInt(String((found as Record<string, unknown>)[INTEGER]));
  const rounded = Number(exact);
  return Number.isSafeInteger(rounded) ? rounded : exact;
}

function decodeValue(found: unknown): Value {
  if (typeof found !== "object" || found === null) return found as Value;
  const [[kind, shown] = []] = Object.entries(found);
  const text = String(shown);
  if (kind === INTEGER) return decodeInteger(found);
  if (kind === "$bytes") return fromHex(text);
  if (kind === "$time") return Time.of(text);
  const number = NUMBERS.get(text);
  if (kind !== "$number" || number === undefined) {
    throw new InvalidValueError(JSON.stringify(found), "expected a value of an attribute");
  }
  return number;
}

/** Returns the attributes of an object of `parseExact`. */
export function decodeAttributes(found: object): Attributes {
  // `fromEntries` defines each name, also `__proto__`, as a member.
  return Object.fromEntries(Object.entries(found).map(([name, values]) => [
    name, Array.isArray(values) ? values.map(decodeValue) : decodeValue(values),
  ]));
}
