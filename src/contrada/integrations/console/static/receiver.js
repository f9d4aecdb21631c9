// The receiver: subscriptions side by side, with the events that match them.
import { html, uPlot, useEffect, useRef, useState } from "./libraries.js";
import {
  KEPT, Received, bodyOf, contentOf, countsOf, lineOf, partsOf, pointsOf, shown, timeText,
  toCsv, toJsonLines, typesOf,
} from "./received.js";
import { ask, stream } from "./requests.js";
import { SubscriptionForm } from "./subscription_form.js";

const VALUES = 20;  // Counted values of an attribute that are shown.
const BODY_CHARACTERS = 20_000;  // Of a body that are shown. Beyond it: the first ones.
const ROW_PX = 24;  // As in console.css.
const DRAW_MS = 100;  // Between two drawings: a person reads no faster, and the page stays smooth.
const AGAIN_MS = 1_000;  // After the end of a stream, before it is opened again.
const USUAL = { id: "", publisher: "", sequence: 0, priority: 4, delivery: "best-effort" };
const LATER = [408, 429];  // Refusals that a later request may not meet.

function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** A table of many rows, of which only the visible ones are in the page. */
function Rows({ events, selected, onSelect }) {
  const [top, setTop] = useState(0), box = useRef(null);
  const height = box.current ? box.current.clientHeight : 300;
  const first = Math.max(0, Math.floor(top / ROW_PX) - 5);
  const last = Math.min(events.length, first + Math.ceil(height / ROW_PX) + 10);
  // The newest is the first row.
  const visible = [];
  for (let at = first; at < last; at++) visible.push(events[events.length - 1 - at]);
  return html`<div class="rows" ref=${box} tabindex="0" role="list" aria-label="Events"
      onScroll=${event => setTop(event.target.scrollTop)}>
    <div style=${`height: ${events.length * ROW_PX}px`}>
      <div style=${`transform: translateY(${first * ROW_PX}px)`}>${visible.map(each => html`
        <div role="listitem" key=${each.number} class=${each === selected ? "selected" : ""}>
          <button onClick=${() => onSelect(each)}>${each.number}</button>
          <code>${lineOf(each)}</code></div>`)}</div>
    </div></div>`;
}

function Plot({ points, name }) {
  const host = useRef(null), plot = useRef(null);
  useEffect(() => {
    const box = host.current;  // It is observed a moment longer than it is referred to.
    const size = () => ({ width: box.clientWidth, height: 160 });
    const { color } = getComputedStyle(box), axis = { stroke: color };
    const series = [{}, { label: name, stroke: "#2f81f7", points: { size: 3 } }];
    plot.current = new uPlot(
      { ...size(), series, axes: [axis, axis], legend: { show: false } }, points, box,
    );
    // Another subscription beside it leaves less room.
    const resized = new ResizeObserver(() => plot.current.setSize(size()));
    resized.observe(box);
    return () => {
      resized.disconnect();
      plot.current.destroy();
    };
  }, [name]);
  plot.current?.setData(points);
  return html`<div ref=${host} role="img" aria-label=${`Plot of ${name}`}></div>`;
}

function Counts({ events, name }) {
  const sorted = countsOf(events, name);
  return html`<div class="few" tabindex="0"><table aria-label=${`Counts of ${name}`}><tbody>
    ${sorted.slice(0, VALUES).map(([value, count]) => html`<tr><th scope="row">${value}</th><td>${count}</td></tr>`)}
  </tbody></table></div>${sorted.length > VALUES && html`<p>of ${sorted.length} values</p>`}`;
}

function Body({ of }) {
  const { text, hex, size } = bodyOf(of), content = contentOf(of);
  const all = content === undefined ? text ?? hex : JSON.stringify(content, null, 2);
  const isCut = all.length > BODY_CHARACTERS;
  return html`<p>Body: ${size} bytes, ${of.content_type || "no content type"}${hex && ", in hexadecimal"}${
    isCut && `; the first ${BODY_CHARACTERS} characters`}</p>
    <pre aria-label="Body" tabindex="0">${all.slice(0, BODY_CHARACTERS)}</pre>`;
}

function Part({ of }) {
  const { time_us, ttl_us, ...named } = { ...USUAL, ...of.envelope }, types = typesOf(of);
  const lifetime = ttl_us === undefined ? {} : { "lifetime in us": ttl_us };
  const rows = Object.entries({ ...named, time: timeText(time_us), ...lifetime });
  return html`<table aria-label="Envelope"><tbody>
      ${types.length > 0 && html`<tr><th scope="row">type</th><td>${types.join(" < ")}</td></tr>`}
      ${rows.map(([name, value]) => html`<tr><th scope="row">${name}</th><td>${shown(value)}</td></tr>`)}
    </tbody></table>
    <pre aria-label="Values" tabindex="0">${JSON.stringify(of.attributes, null, 2)}</pre>
    ${(of.body || of.content_type) && html`<${Body} of=${of} />`}`;
}

const isFinal = ({ status }) => status < 500 && !LATER.includes(status);

/** Reads a stream again and again, from where it ended, until `signal` aborts or it is refused. */
async function read(of, received, signal) {
  while (!signal.aborted) {
    // Records that a person acknowledges are delivered again until then.
    const after = of.isManual ? "" : received.last;
    try {
      const path = `/subscribe?${of.query}`;
      let end = {};
      for await (const event of stream(path, signal, undefined, after)) {
        if (event.name === "end") end = JSON.parse(event.data);
        else received.add(event);
      }
      // A new request would create a durable subscription again that a person removed.
      if (isFinal(end)) return received.become(end.error);
      received.become("ended by the broker, trying again");
    } catch (error) {
      received.become(error.message);
      if (error.status === 409 && after) received.last = "";  // The position cannot be resumed.
      else if (isFinal(error)) return;
    }
    await new Promise(resolve => setTimeout(resolve, AGAIN_MS));
  }
}

function Subscription({ of, user, onEnd, onNames }) {
  const received = useRef(new Received()), [, setDrawn] = useState(0);
  const [frozen, setFrozen] = useState(null), [selected, setSelected] = useState(null);
  const [name, setName] = useState(""), [decided, setDecided] = useState("");
  useEffect(() => {
    const ended = new AbortController(), now = received.current;
    const timer = setInterval(() => {
      now.noteNames();
      onNames(now.names);
      setDrawn(now.version);
    }, DRAW_MS);
    read(of, now, ended.signal);
    return () => {
      ended.abort();
      clearInterval(timer);
    };
  }, [user]);
  const decide = (path, said, position) => {
    const query = new URLSearchParams({ name: of.durable, position });
    ask("POST", `${path}?${query}`).then(
      () => setDecided(`${said} ${position}`), error => setDecided(error.message),
    );
  };
  const { count, repeated, dropped, state, names } = received.current;
  const events = frozen || received.current.events.slice(-KEPT);
  const points = name ? pointsOf(events, name) : [[], []];
  return html`<section aria-label=${`Subscription ${of.label}`}>
    <h2><code>${of.label}</code></h2>
    <p><span role="status">${count} events</span>${" "}
      <span class=${state.startsWith("connect") ? "note" : "error"}>${state}</span>
      ${repeated > 0 && html` <span>${repeated} of them again</span>`}
      ${Object.entries(dropped).map(([why, lost]) => html` <b class="error">${lost} ${why}</b>`)}
    </p>
    <div class="bar">
      <button onClick=${() => setFrozen(frozen ? null : events)}>
        ${frozen ? "Go on" : "Pause"}</button>
      <button onClick=${() => download("events.jsonl", "application/jsonl", toJsonLines(events))}>
        JSON lines</button>
      <button onClick=${() => download("events.csv", "text/csv", toCsv(events))}>CSV</button>
      <button onClick=${onEnd}>Unsubscribe</button>
      <label>Attribute <input size="16" list=${`names-${of.key}`} value=${name}
        onInput=${event => setName(event.target.value)} /></label>
      <datalist id=${`names-${of.key}`}>${[...names].map(each => html`<option value=${each} />`)}</datalist>
    </div>
    ${points[0].length > 0 && html`<${Plot} points=${points} name=${name} />`}
    ${name && html`<${Counts} events=${events} name=${name} />`}
    <${Rows} events=${events} selected=${selected} onSelect=${setSelected} />
    ${selected && html`<div role="region" aria-label="Event">
      ${of.durable && html`<p>Position ${selected.position}
        ${of.isManual && html` <button
            onClick=${() => decide("/queues/acknowledgements", "acknowledged up to", selected.position)}>
          Acknowledge up to here</button>${" "}<button
            onClick=${() => decide("/queues/nacks", "given back:", selected.position)}>
          Give back</button> <span role="status">${decided}</span>`}</p>`}
      ${partsOf(selected).map(each => html`<${Part} of=${each} />`)}
    </div>`}
  </section>`;
}

export function Receiver({ user }) {
  const [subscriptions, setSubscriptions] = useState([]), [seen, setSeen] = useState([]);
  const onNames = names => setSeen(before => {
    const found = new Set([...before, ...names]);
    return found.size === before.length ? before : [...found];
  });
  const types = seen.map(each => /^(\d+: )?@is\.(?!by\()(.+)/.exec(each)?.[2]).filter(Boolean);
  return html`<${SubscriptionForm} types=${types} names=${seen} onSubscribe=${of =>
      setSubscriptions(before => [...before, { ...of, key: Date.now() }])} />
    <div class="side-by-side">${subscriptions.map(each => html`
      <${Subscription} key=${each.key} of=${each} user=${user} onNames=${onNames}
        onEnd=${() => setSubscriptions(before => before.filter(one => one !== each))} />`)}</div>`;
}
