// The messages of `/ws`, which the page on the HTTP port of the broker lists.
import { InvalidValueError } from "./errors.js";
import { type Notification, type Publication, decodeNotification, encodeNotification } from "./notifications.js";
import { encodeText, parseExact } from "./values.js";

/** What a slow subscriber loses. */
export type WhenFull = "drop-oldest" | "drop-newest" | "disconnect";

/** A request of the client; each has one answer, in the order of the requests. */
export type Request =
  | {
    type: "subscribe"; id: string; filter?: string | undefined; dialect?: string | undefined;
    durable?: string | undefined; prefetch?: number | undefined; when_full?: WhenFull | undefined;
  }
  | { type: "unsubscribe"; id: string }
  | { type: "publish"; id: string; publications: readonly Publication[] }
  | { type: "ack" | "extend"; id: string; positions: readonly number[] }
  | { type: "nack"; id: string; positions: readonly number[]; delay_s?: number | undefined };

/** An answer: `ack` or `error`. */
export interface Answer {
  type: "ack" | "error";
  status: number;
  error: string;
  published: number;
  details: Record<string, unknown>;
}

/** A message about a subscription. */
export type Delivery =
  | { type: "event"; id: string; position: number; attempt: number; notification: Notification }
  | { type: "match"; id: string; notifications: Notification[] }
  | { type: "dropped"; id: string; dropped: Record<string, number> }
  | { type: "end"; id: string; status: number; error: string };

/** Returns the text of a request. Throws InvalidValueError. */
export function encodeRequest(request: Request): string {
  if (request.type === "publish") {
    const shown = request.publications.map(each => encodeNotification(...each));
    return `{"type":"publish","id":${encodeText(request.id)},"notifications":[${shown.join(",")}]}`;
  }
  if (request.type === "subscribe") {
    for (const each of [request.filter, request.dialect, request.durable]) encodeText(each ?? "");
    return JSON.stringify({ ...request, form: "notification" });
  }
  if (request.type === "nack" && !Number.isFinite(request.delay_s ?? 0)) { // As JSON: the usual delay.
    throw new InvalidValueError(request.delay_s, "delayS: expected seconds");
  }
  return JSON.stringify(request);
}

/** Returns a message of the broker. Throws InvalidValueError for an unknown one. */
export function decodeMessage(text: string): Answer | Delivery {
  const found = parseExact(text) as Record<string, any>;
  const { type, id } = found;
  switch (type) {
    case "ack":
    case "error": {
      const { type: _, id: __, status = 0, error = "", ...details } = found;
      return { type, status, error, published: details["published"] ?? 0, details };
    }
    case "event": {
      const { position = 0, attempt = 0 } = found;
      return { type, id, position, attempt, notification: decodeNotification(found["event"]) };
    }
    case "match":
      return { type, id, notifications: found["events"].map(decodeNotification) };
    case "dropped":
      return { type, id, dropped: found["dropped"] };
    case "end":
      return { type, id, status: found["status"] ?? 0, error: found["error"] ?? "" };
    default:
      throw new InvalidValueError(text, "expected a message of the broker");
  }
}
