// The queues of durable subscriptions: their counts and records, and the steps that change them.
import { html, useEffect, useRef, useState } from "./libraries.js";
import { ask, usePoll } from "./requests.js";

const PEEKED = 20;  // Records of a page.

const named = name => encodeURIComponent(name);

/** Returns all queues, page by page. */
async function queuesNow() {
  const found = [];
  for (let after = ""; ;) {
    const page = await ask("GET", `/queues?after=${named(after)}`);
    found.push(...page.queues);
    if (!page.next) return found;
    after = page.next;
  }
}

function age(us) {
  if (!us) return "";
  const seconds = Math.max(0, Date.now() / 1000 - us / 1e6);
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(0)} h`;
}

/** A button that acts after a question, which a dialog asks: it holds the keyboard meanwhile. */
function Step({ label, warning, act }) {
  const dialog = useRef(null), close = () => dialog.current.close();
  return html`<button onClick=${() => dialog.current.showModal()}>${label}</button>
    <dialog ref=${dialog} role="alertdialog" aria-label=${label}><p>${warning}</p>
      <button autofocus onClick=${close}>Cancel</button>${" "}
      <button class="grave" onClick=${() => { close(); act(); }}>${label}</button></dialog>`;
}

function Records({ name }) {
  const [first, setFirst] = useState(1), [page, setPage] = useState(null);
  const [fault, setFault] = useState("");
  useEffect(() => {
    ask("GET", `/queues/records?name=${named(name)}&from=${first}&count=${PEEKED}`)
      .then(setPage, error => setFault(error.message));
  }, [name, first]);
  if (fault) return html`<p class="error" role="alert">${fault}</p>`;
  if (!page) return null;
  return html`<table><thead><tr><th>Position</th><th>Attempt</th><th>Time</th><th>Event</th></tr>
    </thead><tbody>${page.records.map(({ position, attempt, event: { data, ...envelope } }) => html`
      <tr><td>${position}</td><td>${attempt}</td><td>${envelope.time?.slice(0, 19).replace("T", " ")}</td>
        <td><code>${JSON.stringify(data)}</code>
          <details><summary>Envelope</summary><code>${JSON.stringify(envelope)}</code></details></td>
      </tr>`)}
    ${Object.entries(page.unreadable).map(([position, reason]) => html`<tr class="error">
      <td>${position}</td><td>unreadable</td><td colspan="2">${reason}</td></tr>`)}</tbody></table>
    ${!page.records.length && html`<p>No records.</p>`}
    ${first > 1 && html`<button onClick=${() => setFirst(1)}>First records</button>`}
    ${page.next > 0 && html`<button onClick=${() => setFirst(page.next)}>Next records</button>`}`;
}

function Queue({ queue, isOpen, onOpen, onStep }) {
  const { name } = queue;
  const step = (said, method, path) => onStep(async () => {
    const answer = await ask(method, `${path}?name=${named(name)}`);
    return `${name}: ${said} ${answer.moved ?? answer.purged ?? answer.released ?? ""}`;
  });
  return html`<tr class=${queue.stuck || queue.damaged ? "error" : ""}>
      <th scope="row"><button aria-expanded=${isOpen} onClick=${onOpen}>${name}</button></th>
      <td>${queue.unread}</td><td>${queue.handed}</td><td>${queue.delayed}</td>
      <td>${age(queue.oldest_us)}</td><td>${queue.attempts}</td><td>${queue.dead}</td>
      <td>${queue.readers}</td>
    </tr>
    ${isOpen && html`<tr><td colspan="8">
      ${queue.stuck && html`<p class="error">${queue.stuck}</p>`}
      ${queue.dead_letter && html`<p class="note">Dead letters go to ${queue.dead_letter}.</p>`}
      <p>
        <${Step} label="Redrive" warning="Move these dead letters back to their subscription?"
          act=${() => step("redriven", "POST", "/queues/redrive")} />${" "}
        <${Step} label="Give back" act=${() => step("given back", "POST", "/queues/release")}
          warning="Take all unacknowledged records from the readers, to be handed out again?" />${" "}
        <${Step} label="Purge" warning="Delete all records of the queue?"
          act=${() => step("purged", "DELETE", "/queues/records")} />${" "}
        <${Step} label="Remove" warning="End the subscription, with its records?"
          act=${() => step("removed", "DELETE", "/queues")} />
      </p>
      <${Records} name=${name} key=${`${queue.unread} ${queue.handed}`} />
    </td></tr>`}`;
}

export function Queues({ user }) {
  const [queues, setQueues] = useState(null), [open, setOpen] = useState("");
  const [said, setSaid] = useState(""), [fault, setFault] = useState("");
  const [failure, setFailure] = useState("");  // Of the last step.
  const [steps, setSteps] = useState(0);  // Done by this page.
  useEffect(() => setQueues(null), [user]);  // Another user may see others.
  usePoll(async isAsked => {
    try {
      const found = await queuesNow();
      if (!isAsked()) return;
      setQueues(found);
      setFault("");
    } catch (error) {
      if (!isAsked()) return;
      setQueues(null);  // Former counts are no answer.
      setFault(error.message);
    }
  }, [user, steps]);
  const onStep = async step => {
    setSaid("");
    setFailure("");
    try {
      setSaid(await step());
      setSteps(before => before + 1);
    } catch (error) {
      setFailure(`not done: ${error.message}`);
    }
  };
  return html`<section aria-label="Queues"><h2>Queues</h2>
    ${fault && html`<p class="error" role="alert">${fault}</p>`}
    ${failure && html`<p class="error" role="alert">${failure}</p>`}
    <p role="status">${said}</p>
    ${queues && !queues.length && html`<p>No durable subscription.</p>`}
    ${queues && queues.length > 0 && html`<div class="wide" tabindex="0"><table>
      <thead><tr><th>Name</th><th>Unread</th><th>Handed out</th><th>Delayed</th><th>Oldest</th>
        <th>Attempts</th><th>Dead</th><th>Readers</th></tr></thead>
      <tbody>${queues.map(queue => html`<${Queue} key=${queue.name} queue=${queue}
        isOpen=${queue.name === open} onStep=${onStep}
        onOpen=${() => setOpen(queue.name === open ? "" : queue.name)} />`)}</tbody>
    </table></div>`}
  </section>`;
}
