// The network: its brokers and links, the filters of one of them, the way of a notification.
import { html, useEffect, useRef, useState } from "./libraries.js";
import { Graph } from "./broker_graph.js";
import { Editor } from "./editor.js";
import { Forest } from "./filter_forest.js";
import { ask, inTurn, usePoll } from "./requests.js";

const PAUSE_MS = 200;  // While the user types.
const SHOWN_MAX = 200;  // Brokers. Beyond it: those that have disappeared are left out.

const GONE = "no link that is known leads to it";

/** Returns the brokers by name. One that has disappeared stays, as away. */
function merged(before, answer) {
  const brokers = new Map();
  for (const now of answer.brokers) {
    const known = before.get(now.name);
    const last = known && known.statistics;
    brokers.set(now.name, now.counts ? { ...now, last } : { ...known, ...now, isAway: true });
  }
  return withGone(brokers, before, GONE);
}

/** Adds the brokers of before that are not there, as away. */
function withGone(brokers, before, reason) {
  for (const [name, known] of before) {
    const isShown = brokers.has(name) || brokers.size >= SHOWN_MAX;
    if (!isShown) brokers.set(name, { ...known, reason, isAway: true });
  }
  return brokers;
}

/** Returns the change per second of a count; nothing after a restart, which begins again at 0. */
function rate({ statistics: now, last }, count) {
  if (!now || !last || last.began_us !== now.began_us) return "";
  const seconds = (now.now_us - last.now_us) / 1e6;
  return seconds > 0 ? `${((count(now) - count(last)) / seconds).toFixed(0)}/s` : "";
}

function Brokers({ brokers, selected, onSelect }) {
  return html`<div class="scroll" tabindex="0"><table aria-label="Brokers"><thead><tr><th>Broker</th>
    <th>State</th><th>Clients</th><th>Subscriptions</th><th>Filters</th><th>Published</th>
    <th>Matched</th></tr></thead><tbody>${[...brokers.values()].map(broker => html`
    <tr key=${broker.name} class=${broker.isAway ? "error" : ""}>
      <th scope="row"><button aria-pressed=${broker.name === selected}
        onClick=${() => onSelect(broker.name)}>${broker.name || "broker"}</button></th>
      <td>${broker.isAway ? `away: ${broker.reason}` : "answers"}</td>
      ${!broker.isAway ? html`<td>${broker.counts.clients}</td>
        <td>${broker.statistics.subscriptions}</td><td>${broker.counts.filters}</td>
        <td>${broker.statistics.published} ${rate(broker, it => it.published)}</td>
        <td>${broker.statistics.matched} ${rate(broker, it => it.matched)}</td>`
        : html`<td colspan="5"></td>`}</tr>`)}</tbody></table></div>`;
}

function Links({ broker }) {
  const { link_sent, link_waiting } = broker.statistics;
  return html`<div class="scroll" tabindex="0"><table aria-label="Links"><thead><tr><th>Link to</th><th>Role</th>
    <th>Filters to know</th><th>Sent</th><th>Saved by covering</th><th>Notifications</th>
    <th>Waiting</th></tr></thead><tbody>${broker.links.map(link => html`
    <tr class=${link.unused ? "error" : ""}><th scope="row">${link.name}</th>
      <td>${link.role}${link.unused && `, not used: ${link.unused}`}</td>
      <td>${link.wanted}</td><td>${link.sent}</td>
      <td>${link.wanted ? `${(100 * (1 - link.sent / link.wanted)).toFixed(0)} %` : ""}</td>
      <td>${link_sent[link.name] ?? ""} ${rate(broker, it => it.link_sent[link.name] || 0)}</td>
      <td>${link_waiting[link.name] ?? ""}</td></tr>`)}</tbody></table></div>`;
}

function Counts({ title, counts }) {
  const entries = Object.entries(counts || {});
  if (!entries.length) return null;
  return html`<table aria-label=${title}><caption>${title}</caption><tbody>${
    entries.map(([name, count]) => html`
      <tr><th scope="row">${name}</th><td>${count}</td></tr>`)}</tbody></table>`;
}

function One({ broker }) {
  if (broker.isAway) return html`<p class="error">away: ${broker.reason}</p>`;
  const { statistics } = broker;
  const plain = ["connections", "subscriptions", "held_bytes"];
  return html`<p class="note">${[broker.address, broker.strategy].filter(Boolean).join(", ")}</p>
    ${broker.links.length > 0 && html`<${Links} broker=${broker} />`}
    <div class="side-by-side">
      <${Counts} title="Now" counts=${Object.fromEntries(
        plain.map(name => [name.replace("_", " "), statistics[name]]))} />
      <${Counts} title="Subscriptions of clients" counts=${broker.clients} />
      <${Counts} title="Dropped" counts=${statistics.dropped} />
      <${Counts} title="Refused" counts=${statistics.refused} /></div>`;
}

function Hop({ hop }) {
  const onward = hop.steps.filter(step => !step.reason), { delivering = 0 } = hop.counts;
  const against = hop.reason ? [] : hop.steps.filter(step => step.reason);
  return html`<li><strong>${hop.broker || "broker"}</strong>${
    hop.came_from && ` from ${hop.came_from}`}: ${hop.reason
      ? html`<span class="error">stops here: ${hop.reason}</span>`
      : `${delivering ? `delivers for ${delivering} subscriptions, ` : ""}forwards to ${
        onward.map(step => step.name).join(", ") || "nobody"}`}
    ${hop.not_yours && html`<p class="error">You: ${hop.not_yours}</p>`}
    <ul>${against.map(step => html`<li class="note">not to ${step.name}: ${step.reason}</li>`)}
      ${hop.matching.filter(each => each.parties.some(it => !it.startsWith("neighbour"))).map(each =>
        html`<li class="yes"><code>${each.text}</code> <span class="note">${
          each.parties.join(", ")}</span></li>`)}</ul></li>`;
}

function Way({ answer }) {
  if (!answer.hops.length) return null;
  const reached = answer.hops.filter(hop => !hop.reason && hop.counts.delivering);
  return html`<p role="status">${reached.length
      ? `delivered at ${reached.map(hop => hop.broker || "broker").join(", ")}`
      : "delivered nowhere: no matching subscription is reached"}</p>
    <ol aria-label="Hops">${answer.hops.map(hop => html`<${Hop} hop=${hop} />`)}</ol>
    ${Object.entries(answer.missed).map(([name, why]) => html`
      <p class="error">${name} has matching subscriptions, and is not reached: ${why}</p>`)}`;
}

/** Returns the width of an element, for pictures in pixels. */
function useWidth() {
  const element = useRef(null), [width, setWidth] = useState(300);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(element.current);
    return () => watch.disconnect();
  }, []);
  return [element, width];
}

/** Asks while the page is visible. Returns the last answer, the brokers so far, and a fault. */
function useNetwork(record, at, user) {
  const [found, setFound] = useState({ answer: null, brokers: new Map() });
  const [fault, setFault] = useState("");
  const known = useRef(new Map());
  useEffect(() => {
    known.current = new Map();  // Another user may see less.
    setFound({ answer: null, brokers: known.current });
  }, [user]);
  usePoll(async isAsked => {
    try {
      const answer = await inTurn(
        "network", () => isAsked() && ask("POST", "/console/network", { record, at }));
      if (!isAsked()) return;
      known.current = merged(known.current, answer);
      setFound({ answer, brokers: known.current });
      setFault("");
    } catch (error) {
      if (!isAsked()) return;
      known.current = withGone(new Map(), known.current, error.message);  // Former counts are no answer.
      setFound(({ answer }) => ({ answer, brokers: known.current }));
      setFault(error.message);
    }
  }, [user, record, at], PAUSE_MS);
  return { ...found, fault };
}

function sentRates(brokers) {
  const sent = {};
  for (const broker of brokers.values()) {
    for (const name of Object.keys(broker.statistics ? broker.statistics.link_sent : {})) {
      if (broker.isAway) continue;
      const perSecond = rate(broker, it => it.link_sent[name] || 0);
      if (perSecond !== "0/s") sent[JSON.stringify([broker.name, name])] = perSecond;
    }
  }
  return sent;
}

export function NetworkView({ user }) {
  const [record, setRecord] = useState(""), [at, setAt] = useState("");
  const [chosen, setChosen] = useState(null), [box, width] = useWidth();
  const { answer, brokers, fault } = useNetwork(record, at, user);
  const first = answer && answer.brokers[0].name;
  const selected = brokers.has(chosen) ? chosen : first, broker = brokers.get(selected);
  const hops = answer && record.trim() ? answer.hops : [];
  const hop = hops.find(each => each.broker === selected);
  const matching = new Set(hop ? hop.matching.map(each => each.number) : []);
  return html`<div class="playground">
    <section aria-label="Network"><h2>Network</h2>
      <div ref=${box}>
        ${fault && html`<p class="error" role="alert">${fault}</p>`}
        ${answer && html`<${Graph} brokers=${brokers} hops=${hops} sent=${sentRates(brokers)}
          selected=${selected} onSelect=${setChosen} wide=${width} />`}</div>
      ${answer && html`<${Brokers} brokers=${brokers} selected=${selected} onSelect=${setChosen} />
        ${answer.left_out > 0 && html`<p>${answer.left_out} brokers are left out.</p>`}`}
    </section>
    <section aria-label="Way"><h2>Way of a notification</h2>
      <label>Published at <select value=${at || first}
        onChange=${event => setAt(event.target.value)}>${[...brokers.keys()].map(name => html`
        <option value=${name}>${name || "broker"}</option>`)}</select></label>
      <${Editor} label="Notification" value="" onChange=${setRecord} rows=${2}
        error=${answer && answer.fault ? { error: answer.fault } : undefined}
        hint='{"symbol": "DIS", "price": 98.5}' />
      ${answer && !fault && record.trim() && html`<${Way} answer=${answer} />`}
    </section>
    <section aria-label="Broker">${broker && html`<h2>${`Broker ${broker.name}`}</h2>
      <${One} broker=${broker} />
      ${!broker.isAway && html`<h3>Filters</h3>
        <${Forest} key=${broker.name} broker=${broker} matching=${matching} user=${user} />`}`}
    </section>
  </div>`;
}
