// The errors of the client. Each message has the offending value and the remedy.

const SHOWN_CHARACTERS = 200; // Of a value in a message. Beyond it: its beginning.

function shown(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : String(value);
  return text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text;
}

/** The base of all errors of the client. */
export class ContradaError extends Error {
  override readonly name: string = "ContradaError";
}

/** A value that the client refuses. Nothing was sent. */
export class InvalidValueError extends ContradaError {
  override readonly name = "InvalidValueError";

  constructor(readonly value: unknown, readonly reason: string) {
    super(`${shown(value)}: ${reason}`);
  }
}

/** A limit of the client that a call would exceed. Nothing was sent. */
export class LimitError extends ContradaError {
  override readonly name = "LimitError";

  constructor(readonly limit: string, readonly most: number, reason: string) {
    super(`${limit} = ${most}: ${reason}`);
  }
}

/**
 * A refusal of the broker. `status` is that of HTTP: 400 a malformed request, 401 an unknown token,
 * 403 a missing permission, 409 the state of a durable subscription, 429 a quota, 503 a broker
 * without room. `value` is the refused filter, durable name or position; `details` has other members
 * of the answer, such as `published` and `refused`, the indices of refused notifications.
 */
export class RefusedError extends ContradaError {
  override readonly name = "RefusedError";

  constructor(
    readonly status: number,
    readonly reason: string,
    readonly value: unknown = undefined,
    readonly details: Readonly<Record<string, unknown>> = {},
  ) {
    super(value === undefined ? `${reason} (${status})` : `${shown(value)}: ${reason} (${status})`);
  }

  /** Whether the same request may succeed later. */
  get isTemporary(): boolean {
    return this.status >= 500 || this.status === 408 || this.status === 429;
  }
}

/**
 * A connection that could not be made, or was lost. `mayHaveArrived` is true for a request that was
 * sent and has no answer: the broker may have executed it.
 */
export class ConnectionError extends ContradaError {
  override readonly name = "ConnectionError";

  constructor(reason: string, readonly mayHaveArrived = false) {
    super(reason);
  }
}

/** A call on a client or subscription that is closed. */
export class ClosedError extends ContradaError {
  override readonly name = "ClosedError";
}
