// `Client`: publications and subscriptions over one connection, which is made again when it is lost.
import { ConnectionError, InvalidValueError, LimitError, RefusedError } from "./errors.js";
import { Link, type LinkLimits, type WebSocketConstructor } from "./link.js";
import type { Answer, Delivery, Request } from "./messages.js";
import type { Notification, Publication, PublishOptions } from "./notifications.js";
import {
  type DurableRecord, DurableSubscription, type QueueOptions, Subscription, closedError,
} from "./subscription.js";
import type { Attributes } from "./values.js";

const PREFETCH = 100;
const PATH = "/ws";
const SCHEMES: Record<string, string> = { "http:": "ws:", "https:": "wss:", "ws:": "ws:", "wss:": "wss:" };

/** `lost` while the client tries to connect again, with the reason. */
export type State = "connected" | "lost" | "closed";

export interface ConnectOptions {
  /** The token `NAME.SECRET` of a user, or a function that returns it for each connection. */
  token?: string | (() => string | Promise<string>);
  /** The class of the WebSocket, where the runtime has none: that of the package `ws`. */
  WebSocket?: WebSocketConstructor;
  /** Called with each change of the connection. */
  onState?: (state: State, error?: Error) => void;
  /** Milliseconds before the first attempt to connect again, and at most between two. */
  backoff?: { firstMs: number; mostMs: number };
  limits?: Partial<ClientLimits>;
}

export interface ClientLimits extends LinkLimits {
  /** Milliseconds that a request waits for a lost connection. Beyond it: ConnectionError. */
  waitMs: number;
}

const LIMITS: ClientLimits = { requestsMax: 1_000, answerMs: 30_000, quietMs: 20_000, waitMs: 10_000 };

export interface SubscribeOptions extends QueueOptions {
  /** The language of the filter, such as `cesql`; by default Contrada's own. */
  dialect?: string;
  durable?: undefined;
}

export interface DurableOptions {
  /** The name of the durable subscription: the broker keeps records while nobody reads. */
  durable: string;
  dialect?: string;
  /** Records that are delivered and not acknowledged. Beyond it: the broker keeps the next. */
  prefetch?: number;
  onLoss?: QueueOptions["onLoss"];
}

interface Registered {
  request: Extract<Request, { type: "subscribe" }>;
  subscription: Subscription<any>;
  /** The connection that has received its request. */
  link?: Link;
  /** Returns the item of a delivery. Throws InvalidValueError for one of the other kind. */
  itemOf: (delivery: Delivery, link: Link) => unknown;
}

interface Waiter {
  resolve: (link: Link) => void;
  reject: (error: Error) => void;
  timer: ReturnType<typeof setTimeout>;
}

/** Returns the address of the WebSocket. Throws InvalidValueError. */
function addressOf(url: string): string {
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw new InvalidValueError(url, "expected an address as http://HOST:PORT");
  }
  const scheme = SCHEMES[parsed.protocol];
  if (!scheme) throw new InvalidValueError(url, "expected http, https, ws or wss");
  if (parsed.username || parsed.search || parsed.hash) {
    const shown = `${parsed.protocol}//${parsed.host}${parsed.pathname}`;
    throw new InvalidValueError(shown, "expected no user and no query; the token is an option");
  }
  return `${scheme}//${parsed.host}${parsed.pathname === "/" ? PATH : parsed.pathname}`;
}

/** Returns a positive whole number. Throws InvalidValueError. */
function checked(name: string, value: number, most = Number.MAX_SAFE_INTEGER): number {
  if (Number.isSafeInteger(value) && value >= 1 && value <= most) return value;
  throw new InvalidValueError(value, `${name}: expected a whole number, 1 to ${most}`);
}

/** A connection to a broker; `connect` makes it. */
export class Client {
  readonly #url: string;
  readonly #options: ConnectOptions;
  readonly #socketClass: WebSocketConstructor;
  readonly #limits: ClientLimits;
  readonly #backoff: { firstMs: number; mostMs: number };
  readonly #registered = new Map<string, Registered>();
  readonly #ended = new AbortController();
  #waiters: Waiter[] = [];
  #link: Link | undefined;
  #failure: Error | undefined;
  #isClosed = false;
  #lastId = 0;
  #attempts = 0;
  #connectedAt = 0;

  /** @internal */
  constructor(url: string, options: ConnectOptions) {
    this.#url = addressOf(url);
    this.#options = options;
    this.#limits = { ...LIMITS, ...options.limits };
    for (const [name, value] of Object.entries(this.#limits)) checked(`limits.${name}`, value);
    this.#backoff = options.backoff ?? { firstMs: 100, mostMs: 10_000 };
    const constructor = options.WebSocket ?? (globalThis as { WebSocket?: WebSocketConstructor }).WebSocket;
    if (!constructor) {
      const reason = "this runtime has none: pass that of the package ws, or use Node 22 or later";
      throw new InvalidValueError("WebSocket", reason);
    }
    this.#socketClass = constructor;
  }

  /** @internal */
  async open(): Promise<void> {
    this.#adopt(await this.#connect());
  }

  /**
   * Publishes a notification; returns when it is in the queues of its subscribers, and above best
   * effort when the broker guarantees it. Throws InvalidValueError, RefusedError, LimitError, and
   * ConnectionError, whose `mayHaveArrived` tells a request that was sent.
   */
  async publish(attributes: object, options?: PublishOptions): Promise<void> {
    await this.publishAll([[attributes, options]]);
  }

  /**
   * Publishes several notifications in one message, in order; returns their number. A forbidden one
   * does not affect the others: RefusedError has `refused`, their indices, in its `details`.
   */
  async publishAll(publications: readonly Publication[]): Promise<number> {
    const answer = await this.#request({ type: "publish", id: "", publications });
    return answer.published;
  }

  /** Subscribes to a filter; with `durable` as a reader of the subscription of that name. */
  async subscribe<A extends object = Attributes>(
    filter: string | undefined, options: DurableOptions,
  ): Promise<DurableSubscription<Notification<A>>>;
  async subscribe<A extends object = Attributes>(
    filter: string, options?: SubscribeOptions,
  ): Promise<Subscription<Notification<A>>>;
  async subscribe(
    filter: string | undefined, options: SubscribeOptions | DurableOptions = {},
  ): Promise<Subscription<any>> {
    if (options.durable === undefined) return this.#subscribe(filter, options, delivery => {
      if (delivery.type === "event") return delivery.notification;
      throw new InvalidValueError(filter, "this is a pattern: use subscribePattern");
    });
    const { durable, dialect, onLoss, prefetch = PREFETCH } = options;
    checked("prefetch", prefetch, 10_000);
    const id = this.#newId();
    const request: Registered["request"] = { type: "subscribe", id, filter, dialect, durable, prefetch };
    // The broker sends no more than the prefetch, so the queue is never full.
    const queue = { queueMax: Infinity, ...(onLoss && { onLoss }) };
    const subscription = new DurableSubscription<Notification>(queue, () => this.#leave(id));
    return this.#register({
      request, subscription, itemOf: (delivery, link) => this.#record(id, delivery, link),
    });
  }

  /** Subscribes to a pattern; each item is a match: its notifications in their order. */
  async subscribePattern<A extends object = Attributes>(
    pattern: string, options: SubscribeOptions = {},
  ): Promise<Subscription<readonly Notification<A>[]>> {
    return this.#subscribe(pattern, options, delivery => {
      if (delivery.type === "match") return delivery.notifications;
      throw new InvalidValueError(pattern, "this is no pattern: use subscribe");
    });
  }

  /** Waits for the answers to running requests, then ends all subscriptions and the connection. */
  async close(): Promise<void> {
    const link = this.#link;
    this.#ended.abort();
    this.#rejectWaiters(closedError());
    await link?.close();
    this.#end();
  }

  // ---------------------------------------------------------------------------- subscriptions

  async #subscribe(
    filter: string | undefined, options: SubscribeOptions, itemOf: (delivery: Delivery) => unknown,
  ): Promise<Subscription<any>> {
    if (typeof filter !== "string") throw new InvalidValueError(filter, "expected a filter");
    if (options.queueMax !== undefined) checked("queueMax", options.queueMax);
    const id = this.#newId(), { dialect, whenFull: when_full } = options;
    return this.#register({
      request: { type: "subscribe", id, filter, dialect, when_full },
      subscription: new Subscription(options, () => this.#leave(id)),
      itemOf,
    });
  }

  async #register<S extends Subscription<any>>(of: Registered & { subscription: S }): Promise<S> {
    const { request, subscription } = of;
    const link = await this.#linked();
    // Events may arrive in the same packet as the answer.
    this.#registered.set(request.id, of);
    of.link = link;
    try {
      await link.request(request);
    } catch (error) {
      this.#registered.delete(request.id);
      throw error;
    }
    return subscription;
  }

  async #leave(id: string): Promise<void> {
    const link = this.#registered.get(id)?.link;
    if (!this.#registered.delete(id) || !link) return;
    try {
      await link.request({ type: "unsubscribe", id });
    } catch (error) {
      // A lost connection ends the subscription, too.
      if (!(error instanceof ConnectionError)) throw error;
    }
  }

  #record(id: string, delivery: Delivery, link: Link): DurableRecord<Notification> {
    if (delivery.type !== "event") throw new InvalidValueError(id, "a durable subscription has no matches");
    const { notification, position, attempt } = delivery;
    const settle = async (request: Request) => {
      if (!this.#registered.has(id)) return false;
      try {
        await link.request(request);
        return true;
      } catch (error) {
        // Closed meanwhile, it has no subscription at the broker any more.
        if (this.#registered.has(id) && !(error instanceof ConnectionError)) throw error;
        return false;
      }
    };
    const positions = [position];
    return {
      notification, position, attempt,
      ack: () => settle({ type: "ack", id, positions }),
      nack: ({ delayS } = {}) => settle({ type: "nack", id, positions, delay_s: delayS }),
      extend: () => settle({ type: "extend", id, positions }),
    };
  }

  #deliver(delivery: Delivery, link: Link): void {
    const found = this.#registered.get(delivery.id);
    if (!found) return; // It was closed while this was on its way.
    const { subscription, itemOf } = found;
    if (delivery.type === "dropped") {
      for (const [reason, count] of Object.entries(delivery.dropped)) subscription.lose({ reason, count });
    } else if (delivery.type === "end") {
      const { status, error } = delivery;
      const refusal = new RefusedError(status, error, found.request.durable ?? found.request.filter);
      if (status && !refusal.isTemporary) {
        this.#registered.delete(delivery.id);
        subscription.end(refusal);
      } else { // The broker stops: the subscription is restored on the next connection.
        link.lose(error || "the broker has ended its subscriptions");
      }
    } else {
      try {
        subscription.receive(itemOf(delivery, link));
      } catch (error) {
        subscription.end(error as Error);
        void this.#leave(delivery.id);
      }
    }
  }

  #newId(): string {
    this.#lastId += 1;
    return `s${this.#lastId}`;
  }

  // ------------------------------------------------------------------------------- connection

  async #connect(): Promise<Link> {
    const { token = "" } = this.#options;
    const given = typeof token === "function" ? await token() : token;
    const link: Link = await Link.open(
      this.#socketClass, this.#url, given, this.#limits, this.#ended.signal,
      delivery => this.#deliver(delivery, link),
      error => this.#lose(link, error),
    );
    return link;
  }

  /** Uses a connection on which all subscriptions are in force. */
  #adopt(link: Link): void {
    this.#link = link;
    this.#connectedAt = performance.now();
    for (const { resolve, timer } of this.#waiters.splice(0)) {
      clearTimeout(timer);
      resolve(link);
    }
    this.#options.onState?.("connected");
  }

  #lose(link: Link, error: Error): void {
    if (link !== this.#link) return; // `#restore` has another one.
    this.#link = undefined;
    if (this.#ended.signal.aborted) return;
    this.#forgetRecords();
    // A broker that accepts each connection and soon loses it is asked less and less often.
    if (performance.now() - this.#connectedAt > this.#backoff.mostMs) this.#attempts = 0;
    void this.#restore();
    this.#options.onState?.("lost", error);
  }

  /** Connects again and again, and restores the subscriptions. */
  async #restore(): Promise<void> {
    while (!this.#ended.signal.aborted) {
      await this.#pause(this.#attempts++);
      let link: Link | undefined;
      try {
        if (this.#ended.signal.aborted) return;
        link = await this.#connect();
        await this.#resubscribe(link);
        if (this.#ended.signal.aborted) return link.lose("the client is closed");
        return this.#adopt(link);
      } catch (error) {
        link?.lose("the subscriptions could not be restored");
        this.#forgetRecords();
        if (error instanceof RefusedError && !error.isTemporary) return this.#end(error);
        if (!(error instanceof RefusedError || error instanceof ConnectionError)) {
          return this.#end(error as Error); // Of the function that returns the token.
        }
      }
    }
  }

  async #resubscribe(link: Link): Promise<void> {
    for (const [id, registered] of [...this.#registered]) {
      if (!this.#registered.has(id)) continue;
      const { request, subscription } = registered;
      registered.link = link;
      try {
        await link.request(request);
        if (!(subscription instanceof DurableSubscription)) subscription.lose({ reason: "reconnect" });
      } catch (error) {
        if (!(error instanceof RefusedError) || error.isTemporary) throw error;
        this.#registered.delete(id);
        subscription.end(error);
      }
    }
  }

  /** Drops queued records of a lost connection: the broker delivers them again. */
  #forgetRecords(): void {
    for (const { subscription } of this.#registered.values()) {
      if (subscription instanceof DurableSubscription) subscription.forget();
    }
  }

  /** Waits with a growing, random pause, so that many clients do not come back at once. */
  #pause(attempt: number): Promise<void> {
    const { firstMs, mostMs } = this.#backoff;
    const ms = Math.min(mostMs, firstMs * 2 ** Math.min(attempt, 30)) * (0.5 + Math.random() / 2);
    return new Promise(resolve => {
      const done = () => {
        clearTimeout(timer);
        this.#ended.signal.removeEventListener("abort", done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.#ended.signal.addEventListener("abort", done);
    });
  }

  async #request(request: Request): Promise<Answer> {
    return (this.#link ?? await this.#linked()).request(request);
  }

  /** Returns the connection, or waits for it. Throws ConnectionError, ClosedError, LimitError. */
  #linked(): Promise<Link> {
    if (this.#failure) return Promise.reject(this.#failure);
    if (this.#ended.signal.aborted) return Promise.reject(closedError());
    if (this.#link) return Promise.resolve(this.#link);
    const { requestsMax, waitMs } = this.#limits;
    if (this.#waiters.length >= requestsMax) {
      return Promise.reject(new LimitError("requestsMax", requestsMax, "requests wait for a connection"));
    }
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        resolve, reject, timer: setTimeout(() => {
          this.#waiters = this.#waiters.filter(each => each !== waiter);
          reject(new ConnectionError(`${this.#url}: no connection within ${waitMs} ms`));
        }, waitMs),
      };
      this.#waiters.push(waiter);
    });
  }

  #rejectWaiters(error: Error): void {
    for (const { reject, timer } of this.#waiters.splice(0)) {
      clearTimeout(timer);
      reject(error);
    }
  }

  /** Ends all subscriptions, with the reason for which the broker refuses this client. */
  #end(failure?: Error): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#failure = failure;
    this.#ended.abort();
    this.#rejectWaiters(failure ?? closedError());
    for (const { subscription } of this.#registered.values()) subscription.end(failure);
    this.#registered.clear();
    this.#options.onState?.("closed", failure);
  }
}

/**
 * Connects to the HTTP port of a broker, and returns once it has accepted the token. Throws
 * InvalidValueError, ConnectionError where there is no broker, RefusedError where it refuses the
 * token. A connection that is lost later is made again, with growing pauses, until `close`.
 */
export async function connect(url: string, options: ConnectOptions = {}): Promise<Client> {
  const client = new Client(url, options);
  await client.open();
  return client;
}
