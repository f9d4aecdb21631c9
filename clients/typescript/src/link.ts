// `Link`: one WebSocket to the broker. Answers arrive in the order of the requests.
import { ConnectionError, LimitError, RefusedError } from "./errors.js";
import { type Answer, type Delivery, decodeMessage, encodeRequest } from "./messages.js";
import type { Request } from "./messages.js";

const SUBPROTOCOL = "contrada";
const TOKEN_PROTOCOL = "contrada.token."; // The token is no part of the address, which logs keep.
const NORMAL = 1000;
const HELLO: Request = { type: "publish", id: "", publications: [] };

/** A class of the WebSocket standard: that of browsers, of Node 22, or of the package `ws`. */
export type WebSocketConstructor = new (url: string, protocols: string[]) => object;

export interface LinkLimits {
  /** Requests without an answer, and those that wait for a connection. Beyond it: LimitError. */
  requestsMax: number;
  /** Milliseconds for an answer. Beyond it: the connection counts as lost. */
  answerMs: number;
  /** Milliseconds of silence. Beyond it: the broker is asked whether it is there. */
  quietMs: number;
}

interface Pending {
  request: Request;
  resolve: (answer: Answer) => void;
  reject: (error: Error) => void;
  timer: ReturnType<typeof setTimeout>;
}

/** Returns the subprotocols of a handshake, the second one with the token. */
function protocolsOf(token: string): string[] {
  if (!token) return [SUBPROTOCOL];
  const bytes = new TextEncoder().encode(token);
  const encoded = btoa(String.fromCharCode(...bytes));
  const safe = encoded.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return [SUBPROTOCOL, TOKEN_PROTOCOL + safe];
}

/** Returns the value of a request that an error shows. */
function valueOf(request: Request): unknown {
  if (request.type === "subscribe") return request.filter ?? request.durable;
  return "positions" in request ? request.positions.join(", ") : undefined;
}

export class Link {
  readonly #socket: WebSocket;
  readonly #limits: LinkLimits;
  readonly #pending: Pending[] = [];
  readonly #onDelivery: (delivery: Delivery) => void;
  readonly #onLost: (error: ConnectionError) => void;
  #watch: ReturnType<typeof setInterval> | undefined;
  #heard = performance.now();
  #lost: ConnectionError | undefined;
  #idle: (() => void) | undefined;
  #answered: Promise<void> | undefined;

  private constructor(
    socket: WebSocket,
    limits: LinkLimits,
    onDelivery: (delivery: Delivery) => void,
    onLost: (error: ConnectionError) => void,
  ) {
    [this.#socket, this.#limits, this.#onDelivery, this.#onLost] = [socket, limits, onDelivery, onLost];
  }

  /**
   * Connects, and returns once the broker has accepted the token. `onLost` is called once, after
   * that; `signal` ends an attempt. Throws ConnectionError, RefusedError.
   */
  static async open(
    constructor: WebSocketConstructor,
    url: string,
    token: string,
    limits: LinkLimits,
    signal: AbortSignal,
    onDelivery: (delivery: Delivery) => void,
    onLost: (error: ConnectionError) => void,
  ): Promise<Link> {
    const socket = new constructor(url, protocolsOf(token)) as WebSocket;
    const link = new Link(socket, limits, onDelivery, onLost);
    const opened = new Promise<void>(resolve => socket.addEventListener("open", () => resolve()));
    const hello = link.#await(HELLO);
    socket.addEventListener("message", event => link.#receive(event.data));
    // Only Node's own WebSocket does not close behind an error; browsers give no reason.
    socket.addEventListener("error", event => {
      const reason = (event as { message?: string }).message;
      link.lose(`${url}: the connection failed${reason ? ` (${reason})` : ""}`);
    });
    socket.addEventListener("close", ({ code, reason }) => link.lose(
      `${url}: the connection was closed (${code}${reason ? `, ${reason}` : ""})`,
    ));
    const leave = () => link.lose("the client is closed");
    signal.addEventListener("abort", leave);
    try {
      // A refusal is the answer to the greeting: browsers hide that to a handshake.
      await Promise.race([opened, hello]);
      socket.send(encodeRequest(HELLO));
      await hello;
    } finally {
      signal.removeEventListener("abort", leave);
    }
    link.#watch = setInterval(() => link.#check(), limits.quietMs);
    return link;
  }

  /** Sends a request; returns its answer. Throws RefusedError, ConnectionError, LimitError. */
  request(request: Request): Promise<Answer> {
    if (this.#lost) return Promise.reject(this.#lost);
    if (this.#pending.length >= this.#limits.requestsMax) {
      const reason = "requests have no answer yet; await some of them first";
      return Promise.reject(new LimitError("requestsMax", this.#limits.requestsMax, reason));
    }
    let text: string;
    try {
      text = encodeRequest(request);
    } catch (error) {
      return Promise.reject(error);
    }
    const answer = this.#await(request);
    this.#socket.send(text);
    return answer;
  }

  get isLost(): boolean {
    return this.#lost !== undefined;
  }

  /** Ends the connection after the answers to all requests. */
  async close(): Promise<void> {
    if (this.#pending.length && !this.#lost) {
      this.#answered ??= new Promise<void>(resolve => this.#idle = resolve);
    }
    await this.#answered;
    this.lose("the client is closed");
  }

  /** Gives the connection up: requests without an answer fail. */
  lose(reason: string): void {
    if (this.#lost) return;
    this.#lost = new ConnectionError(reason);
    clearInterval(this.#watch);
    for (const { request, timer, reject } of this.#pending.splice(0)) {
      clearTimeout(timer);
      const sent = new ConnectionError(`${reason}; the request may have been executed`, true);
      reject(request === HELLO ? this.#lost : sent);
    }
    this.#idle?.();
    this.#socket.close(NORMAL);
    if (this.#watch) this.#onLost(this.#lost);
  }

  #await(request: Request): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const { answerMs } = this.#limits;
      const late = () => this.lose(`the broker gave no answer within ${answerMs} ms`);
      this.#pending.push({ request, resolve, reject, timer: setTimeout(late, answerMs) });
    });
  }

  #receive(data: unknown): void {
    if (this.#lost) return;
    this.#heard = performance.now();
    let message: Answer | Delivery;
    try {
      message = decodeMessage(String(data));
    } catch (error) {
      this.lose(`the broker sent a malformed message: ${(error as Error).message}`);
      return;
    }
    if (!("published" in message)) {
      this.#onDelivery(message);
      return;
    }
    const pending = this.#pending.shift();
    if (!pending) {
      this.lose("the broker sent an answer without a request");
      return;
    }
    clearTimeout(pending.timer);
    if (message.type === "ack") {
      pending.resolve(message);
    } else {
      const { status, error, details } = message;
      pending.reject(new RefusedError(status, error, valueOf(pending.request), details));
    }
    if (!this.#pending.length) this.#idle?.();
  }

  /** Sends a request that does nothing after a silence: a dead connection looks silent, too. */
  #check(): void {
    if (performance.now() - this.#heard < this.#limits.quietMs || this.#pending.length) return;
    // Its failure is the loss of the connection, which `lose` reports.
    this.request(HELLO).catch(() => {});
  }
}
