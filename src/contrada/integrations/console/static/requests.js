// Requests to the HTTP port of the broker, with the token of the page's user.
import { useEffect, useRef, useState } from "./libraries.js";

const PAUSE_MS = 200;  // After a key, before the broker is asked.
const WATCH_MS = 1_000;  // Between two questions whether the broker answers.
const ANSWER_MS = 5_000;  // For the answer to it. Beyond it: the broker counts as lost.
const POLL_MS = 2_000;  // Between two looks at counts.
const ATTEMPTS = 5;  // Of a request for which the broker has no room.

// In memory only: a page of another origin, or one that is opened later, cannot read it.
let token = "";

export function setToken(given) {
  token = given;
}

// Whether the last request got no answer, and the components that show it.
let isLost = false;
const watchers = new Set();

/** Returns whether the broker does not answer; a component is drawn again when this changes. */
export function useLost() {
  const [lost, setLost] = useState(isLost);
  useEffect(() => {
    setLost(isLost);
    watchers.add(setLost);
    return () => watchers.delete(setLost);
  }, []);
  return lost;
}

/** As `fetch`. Throws an Error if the broker does not answer. */
async function reach(path, options) {
  let answer = null;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (options.signal?.aborted && error.name !== "TimeoutError") throw error;
  }
  isLost = answer === null;
  for (const each of watchers) each(isLost);
  if (isLost) throw new Error("the broker does not answer");
  return answer;
}

/** Asks until `signal` aborts it whether the broker answers, for all pages. */
export async function watchBroker(signal) {
  while (!signal.aborted) {
    await reach("/healthz", { signal: AbortSignal.timeout(ANSWER_MS) }).catch(() => {});
    await new Promise(resolve => setTimeout(resolve, WATCH_MS));
  }
}

/** Keeps an integer that JavaScript would round as its text; `JSON.stringify` writes it so. */
export function exact(_, value, context) {
  const isRounded = Number.isInteger(value) && !Number.isSafeInteger(value);
  return isRounded && context && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
}

/** Returns the response to a request, also to a later attempt. Throws the broker's reason. */
async function request(method, path, content, signal, after) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  if (after) headers["last-event-id"] = after;
  const body = content === undefined ? undefined : JSON.stringify(content);
  if (body) headers["content-type"] = "application/json";
  for (let attempt = 1; ; attempt++) {
    const response = await reach(path, { method, headers, body, signal });
    if (response.ok) return response;
    const later = response.headers.get("retry-after");
    if (!later || attempt === ATTEMPTS) {
      throw Object.assign(new Error((await response.json()).error), { status: response.status });
    }
    await new Promise(resolve => setTimeout(resolve, later * 1000));
  }
}

/** Returns the answer to a request with JSON. Throws an Error with the broker's reason. */
export async function ask(method, path, content) {
  const response = await request(method, path, content);
  return response.status === 204 ? {} : JSON.parse(await response.text(), exact);
}

const turns = new Map();

/** Returns the answer of `ask()` after those of before: the broker answers a user one of a kind. */
export function inTurn(kind, ask) {
  const answer = (turns.get(kind) || Promise.resolve()).then(ask);
  turns.set(kind, answer.catch(() => {}));  // Its caller reports a failure.
  return answer;
}

/**
 * Yields `{name, data, id}` for each event of an event stream, as texts, until it ends or `signal`
 * aborts it; first one named `open`. With a content it is posted. It resumes behind the id `after`,
 * if that is not empty. Throws an Error with the broker's reason, and the `status` of a refusal.
 */
export async function* stream(path, signal, content, after = "") {
  const response = await request(content ? "POST" : "GET", path, content, signal, after);
  yield { name: "open", data: "", id: "" };
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const event = { name: "message", data: "", id: "" };
      for (const line of part.split("\n")) {
        const end = line.indexOf(": ");
        const field = { event: "name", id: "id", data: "data" }[line.slice(0, Math.max(end, 0))];
        if (field) event[field] = line.slice(end + 2);
      }
      if (event.data) yield event;
    }
  }
}

/**
 * Returns `[isOpen, open, stop]` for a stream that ends with its page, or when the user changes.
 * `open` posts a content, and calls `take` with each event; with the reason of a failure, and
 * whether `stop` was called, `fail`.
 */
export function useStream(user) {
  const [isOpen, setOpen] = useState(false), running = useRef(null);
  const stop = () => running.current?.abort();
  useEffect(() => {
    setOpen(false);
    return () => {
      stop();
      running.current = null;
    };
  }, [user]);
  const open = async (path, content, take, fail) => {
    const ended = running.current = new AbortController(), isRunning = () => running.current === ended;
    setOpen(true);
    try {
      for await (const event of stream(path, ended.signal, content)) if (isRunning()) take(event);
    } catch (error) {
      if (isRunning()) fail(error.message, ended.signal.aborted);
    }
    if (isRunning()) setOpen(false);
  };
  return [isOpen, open, stop];
}

/** As `ask`, after the requests that were made this way before: one trial of a user runs at a time. */
export const askInTurn = (...request) => inTurn("trial", () => ask(...request));

/**
 * Calls `look` again and again, each time a while after its end, while the page is visible; at once
 * when one of `causes` changes. `look` gets a function that tells whether its answer is still asked
 * for: another user may see less.
 */
export function usePoll(look, causes, pauseMs = 0) {
  useEffect(() => {
    let timer, isOver = false, isLooking = false;
    const again = async () => {
      clearTimeout(timer);
      if (isOver || isLooking || document.hidden) return;
      isLooking = true;
      await look(() => !isOver);
      isLooking = false;
      if (!isOver) timer = setTimeout(again, POLL_MS);
    };
    document.addEventListener("visibilitychange", again);
    timer = setTimeout(again, pauseMs);
    return () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", again);
    };
  }, causes);
}

/**
 * Returns the answer to the newest content that a page posts while its user types, and the reason
 * of a failure. One request runs at a time; the newest content follows it.
 */
export function useLatest(path, content, user) {
  const [answer, setAnswer] = useState({}), [fault, setFault] = useState("");
  const lost = useLost(), newest = useRef(null), isAsking = useRef(false);
  useEffect(() => {
    newest.current = { ...content };
    const timer = setTimeout(async () => {
      if (isAsking.current) return;
      isAsking.current = true;
      try {
        for (let sent; sent !== newest.current;) {
          sent = newest.current;
          setAnswer(await askInTurn("POST", path, sent));
        }
        setFault("");
      } catch (error) {
        setFault(error.message);
      } finally {
        isAsking.current = false;
      }
    }, PAUSE_MS);
    return () => clearTimeout(timer);
  }, [content, user, lost]);
  return [answer, fault];
}
