// Notifications, and their JSON: attributes, body and envelope.
import { InvalidValueError } from "./errors.js";
import {
  type Attributes, Time, decodeAttributes, decodeInteger, encodeAttributes, encodeText, fromHex, toHex,
} from "./values.js";

const VERSION = 1;

/** The metadata of a publication. Filters see it as `@id`, `@publisher` and `@time`. */
export interface Envelope {
  readonly id: string;
  readonly publisher: string;
  readonly sequence: number | bigint;
  /** The time of publication. */
  readonly time?: Time;
  /** The lifetime from then on, in microseconds. */
  readonly ttlUs?: number | bigint;
  readonly priority: number;
  readonly delivery: string;
}

/** A notification that was received. `A` is the type of its attributes, which nothing checks. */
export interface Notification<A extends object = Attributes> {
  readonly attributes: A;
  readonly body: Uint8Array;
  /** The content type of the body; empty without one. */
  readonly contentType: string;
  readonly envelope: Envelope;
}

/** What a publisher may add to the attributes. */
export interface PublishOptions {
  /** The body; a text is sent as UTF-8. */
  body?: Uint8Array | string;
  contentType?: string;
  /** The lifetime, in seconds; at best effort only. */
  ttlS?: number;
  /** 0, the lowest, to 9; at best effort only. The default is 4. */
  priority?: number;
  /** `best-effort` (default), `reliable`, `certified`, or another guarantee of the broker. */
  delivery?: string;
  /** With `sequence`: a repeated pair is a duplicate, which the broker drops above best effort. */
  publisher?: string;
  sequence?: number | bigint;
}

/** A notification to publish: its attributes and options. */
export type Publication = readonly [attributes: object, options?: PublishOptions | undefined];

function encodeInteger(name: string, value: number | bigint): string {
  if (typeof value === "number" && !Number.isSafeInteger(value)) {
    throw new InvalidValueError(value, `${name}: expected an integer, beyond 2^53 as bigint`);
  }
  return String(value);
}

/** Returns the JSON of a notification. Throws InvalidValueError. */
export function encodeNotification(attributes: object, options: PublishOptions = {}): string {
  const { body, contentType, ttlS, priority, delivery, publisher, sequence } = options;
  const envelope: string[] = [];
  if (publisher !== undefined) envelope.push(`"publisher":${encodeText(publisher)}`);
  if (sequence !== undefined) envelope.push(`"sequence":${encodeInteger("sequence", sequence)}`);
  if (ttlS !== undefined) {
    if (!(ttlS >= 0 && ttlS < 1e9)) {
      throw new InvalidValueError(ttlS, "ttlS: expected seconds, 0 to 1e9");
    }
    envelope.push(`"ttl_us":${Math.round(ttlS * 1e6)}`);
  }
  if (priority !== undefined) envelope.push(`"priority":${encodeInteger("priority", priority)}`);
  if (delivery !== undefined) envelope.push(`"delivery":${encodeText(delivery)}`);
  const parts = [`"attributes":${encodeAttributes(attributes)}`];
  if (envelope.length) parts.push(`"envelope":{${envelope.join(",")}}`);
  if (body !== undefined) {
    const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
    parts.push(`"body":"${toHex(bytes)}"`);
  }
  if (contentType !== undefined) parts.push(`"content_type":${encodeText(contentType)}`);
  return `{"contrada":${VERSION},"notification":{${parts.join(",")}}}`;
}

/** Returns the notification of an object of `parseExact`. Throws InvalidValueError. */
export function decodeNotification(found: unknown): Notification {
  const { contrada, notification } = (found ?? {}) as Record<string, any>;
  if (contrada !== VERSION || !notification?.attributes) {
    throw new InvalidValueError(JSON.stringify(found), `expected a notification of version ${VERSION}`);
  }
  const { attributes, envelope = {}, body = "", content_type: contentType = "" } = notification;
  const { id = "", publisher = "", sequence = 0, time_us, ttl_us, priority = 4 } = envelope;
  const { delivery = "best-effort" } = envelope;
  return {
    attributes: decodeAttributes(attributes),
    body: fromHex(body),
    contentType,
    envelope: {
      id,
      publisher,
      sequence: decodeInteger(sequence),
      ...(time_us != null && { time: Time.of(BigInt(decodeInteger(time_us))) }),
      ...(ttl_us != null && { ttlUs: decodeInteger(ttl_us) }),
      priority,
      delivery,
    },
  };
}
