// `Subscription`: a bounded queue of received items, read as an asynchronous iterator or by `handle`.
import { ClosedError, LimitError } from "./errors.js";
import type { WhenFull } from "./messages.js";

/** Notifications that did not reach the reader of a subscription. */
export interface Loss {
  /**
   * Why: `client queue full`, `reconnect`, or a reason of the broker, such as `queue full`. Nobody
   * counts the notifications that were published while the connection was lost.
   */
  readonly reason: string;
  readonly count?: number;
}

export interface HandleOptions<T> {
  /** Receives the exceptions of the callback. Without it, the first one ends `handle`. */
  onError?: (error: unknown, item: T) => void;
}

export interface QueueOptions {
  /** Items that wait for the reader. Beyond it: `whenFull` decides. The default is 1,000. */
  queueMax?: number;
  /**
   * What a full queue loses, here and at the broker: the oldest item (default), the newest one, or
   * the subscription, which then ends with a LimitError.
   */
  whenFull?: WhenFull;
  /** Called with each loss. */
  onLoss?: (loss: Loss) => void;
}

interface Waiting<T> {
  resolve: (result: IteratorResult<T, undefined>) => void;
  reject: (error: Error) => void;
}

/** A subscription in force. Leaving the loop of an iteration closes it. */
export class Subscription<T> implements AsyncIterable<T> {
  readonly #queueMax: number;
  readonly #whenFull: WhenFull;
  readonly #onLoss: (loss: Loss) => void;
  readonly #leave: () => Promise<void>;
  readonly #losses = new Map<string, number>();
  #queue: T[] = [];
  #waiting: Waiting<T>[] = [];
  #isClosed = false;
  #failure: Error | undefined;

  /** @internal */
  constructor(options: QueueOptions, leave: () => Promise<void>) {
    this.#queueMax = options.queueMax ?? 1_000;
    this.#whenFull = options.whenFull ?? "drop-oldest";
    this.#onLoss = options.onLoss ?? (() => {});
    this.#leave = leave;
  }

  /** The lost notifications by reason; of `reconnect` the number of lost connections. */
  get losses(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#losses);
  }

  /**
   * Returns the next item; undefined after the end. Throws the reason for which the broker ended the
   * subscription.
   */
  async next(): Promise<T | undefined> {
    return (await this.#next()).value;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void> {
    try {
      for (;;) {
        const { done, value } = await this.#next();
        if (done) return;
        yield value;
      }
    } finally {
      await this.close();
    }
  }

  /**
   * Calls a function with each item, one after another, until the subscription is closed. Throws as
   * `next`, and the first exception of the function, unless `onError` takes it.
   */
  async handle(call: (item: T) => unknown, { onError }: HandleOptions<T> = {}): Promise<void> {
    for await (const item of this) {
      try {
        await call(item);
      } catch (error) {
        if (!onError) throw error;
        onError(error, item);
      }
    }
  }

  /** Ends the subscription; iterations end after the queued items. A durable one stays. */
  async close(): Promise<void> {
    this.end();
    await this.#leave();
  }

  /** @internal */
  receive(item: T): void {
    if (this.#isClosed) return;
    const reader = this.#waiting.shift();
    if (reader) {
      reader.resolve({ done: false, value: item });
    } else if (this.#queue.length < this.#queueMax) {
      this.#queue.push(item);
    } else if (this.#whenFull === "disconnect") {
      const reason = "the reader is too slow; read faster, or choose what to drop by whenFull";
      this.end(new LimitError("queueMax", this.#queueMax, reason));
      // Its failure is that of the connection, with which the subscription ends anyway.
      this.#leave().catch(() => {});
    } else {
      if (this.#whenFull === "drop-oldest") {
        this.#queue.shift();
        this.#queue.push(item);
      }
      this.lose({ reason: "client queue full", count: 1 });
    }
  }

  /** @internal */
  lose(loss: Loss): void {
    this.#losses.set(loss.reason, (this.#losses.get(loss.reason) ?? 0) + (loss.count ?? 1));
    this.#onLoss(loss);
  }

  /** @internal Drops queued records, which the broker delivers again; all without a choice. */
  forget(isGone: (item: T) => boolean = () => true): void {
    this.#queue = this.#queue.filter(item => !isGone(item));
  }

  /** @internal */
  end(failure?: Error): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#failure = failure;
    for (const each of this.#waiting.splice(0)) {
      if (failure) each.reject(failure);
      else each.resolve({ done: true, value: undefined });
    }
  }

  async #next(): Promise<IteratorResult<T, undefined>> {
    if (this.#queue.length) return { done: false, value: this.#queue.shift()! };
    if (this.#failure) throw this.#failure;
    if (this.#isClosed) return { done: true, value: undefined };
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }
}

/** A record of a durable subscription: a notification with its position in the log. */
export interface DurableRecord<N> {
  readonly notification: N;
  readonly position: number;
  /** 1 for the first delivery; more for a repeated one. */
  readonly attempt: number;
  /**
   * Acknowledges it; returns true when that is on stable storage, false if the connection of this
   * record is lost, or the subscription closed: it is delivered again. So do `nack` and `extend`.
   */
  ack(): Promise<boolean>;
  /** Has it delivered again, to any reader, after `delayS` seconds or the delay of the retention. */
  nack(options?: { delayS?: number }): Promise<boolean>;
  /** Begins its time-out anew, during long work. */
  extend(): Promise<boolean>;
}

/**
 * A reader of a durable subscription. Each record must be acknowledged: by its `ack` in a loop; by
 * `handle`, once its function has returned. Unacknowledged ones are delivered again.
 */
export class DurableSubscription<N> extends Subscription<DurableRecord<N>> {
  #calls = 0; // Of functions of `handle`, until their records are settled.

  /** @internal A record that comes again, after its time-out, replaces the queued one. */
  override receive(record: DurableRecord<N>): void {
    if (record.attempt > 1) this.forget(({ position }) => position === record.position);
    super.receive(record);
  }

  /** As for a plain subscription; a record whose call fails is returned to the log by `nack`. */
  override async handle(
    call: (item: DurableRecord<N>) => unknown, options: HandleOptions<DurableRecord<N>> = {},
  ): Promise<void> {
    await super.handle(async record => {
      this.#calls += 1;
      try {
        await this.#settle(record, call);
      } finally {
        this.#calls -= 1;
      }
    }, options);
  }

  async #settle(record: DurableRecord<N>, call: (item: DurableRecord<N>) => unknown): Promise<void> {
    try {
      await call(record);
    } catch (error) {
      // Refused, it is delivered again after its time-out: the error of the call says more.
      await record.nack().catch(() => {});
      throw error;
    }
    await record.ack();
  }

  /**
   * As for a plain subscription. A running `handle` settles its records first, and leaves then: a
   * call may close its own subscription, so this cannot wait for it. The promise of `handle` does.
   */
  override async close(): Promise<void> {
    if (this.#calls) this.end();
    else await super.close();
  }
}

export function closedError(): ClosedError {
  return new ClosedError("the client is closed; connect again");
}
