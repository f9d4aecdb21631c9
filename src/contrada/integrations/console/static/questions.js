// Questions: the sources that are reached, their answers and aggregates as they arrive.
import { html, useEffect, useState } from "./libraries.js";
import { exact, useStream } from "./requests.js";

const SHOWN = 500;  // Answers, or groups, in a table. Beyond it: they are counted.
const DONE = ["answered", "empty"];

const shown = value => typeof value === "string" ? value : JSON.stringify(value);

/** A table of objects: a column for each name in one of them. */
function Rows({ label, rows, count }) {
  if (!rows.length) return null;
  const names = [...new Set(rows.flatMap(Object.keys))];
  return html`<h3>${label}</h3>
    <div class="scroll" role="region" aria-label=${label} tabindex="0"><table>
      <thead><tr>${names.map(name => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>${rows.map(row => html`<tr>${names.map(name => html`
        <td>${row[name] !== undefined && shown(row[name])}</td>`)}</tr>`)}</tbody></table></div>
    ${count > rows.length && html`<p class="note">the first ${rows.length} of ${count}</p>`}`;
}

function Sources({ of }) {
  const total = Object.values(of.states).reduce((sum, each) => sum + each, 0);
  return html`<h3>Sources</h3><div class="scroll" role="region" aria-label="Sources" tabindex="0">
    <table><thead><tr><th scope="col">Source</th><th scope="col">State</th>
      <th scope="col">Answers</th><th scope="col">Reason</th></tr></thead>
    <tbody>${of.sources.map(({ name, state, count, reason }) => html`
      <tr class=${DONE.includes(state) ? "yes" : state === "asked" ? "" : "error"}>
        <th scope="row">${name}</th><td>${state}</td><td>${count}</td><td>${reason}</td></tr>`)}
    </tbody></table></div>
    ${total > of.sources.length && html`<p class="note">the first ${of.sources.length} of ${total}</p>`}`;
}

/** What the results so far stand for. */
function coverageOf({ asked, sources, count, groups, isCancelled, fault }) {
  const { states, has_ended: hasEnded, is_complete: isComplete } = sources;
  const all = Object.values(states).reduce((sum, each) => sum + each, 0);
  const missing = sources.sources.filter(each => ![...DONE, "asked"].includes(each.state));
  const parts = [];
  if (isCancelled) parts.push("Cancelled: the sources are stopped, and answers are missing.");
  else if (fault) parts.push("Ended by an error: answers are missing.");
  else if (!hasEnded) parts.push(`Of ${all} sources ${states.asked || 0} have not ended yet.`);
  else if (!all) parts.push("No source was asked: no description meets the question.");
  else if (isComplete) parts.push(`Complete: all ${all} sources that were asked have answered.`);
  else if (asked.limit && count >= asked.limit) {
    parts.push(`Ended at the limit of ${asked.limit}: sources may have more answers.`);
  } else parts.push(`Answers may be missing of: ${missing.map(each => each.name).join(", ")}.`);
  if (asked.hops !== undefined) parts.push(`Brokers beyond ${asked.hops} links are not asked.`);
  if (groups && asked.shows_answers) {
    parts.push(`The aggregates are exactly of the ${count} answers that have arrived.`);
  } else if (groups) parts.push("The aggregates are exactly of the sources that have answered.");
  if (groups && groups.groups.some(each => each.estimated)) {
    parts.push("Distinct counts are estimates; estimated has their bounds, right 19 times of 20.");
  }
  return parts.join(" ");
}

function questionOf(form) {
  const { question, aggregates, by, sort, limit, timeout, hops, unique, answers } = form.elements;
  const asked = { question: question.value, timeout_s: Number(timeout.value) };
  if (hops.value) asked.hops = Number(hops.value);
  if (aggregates.value.trim()) {
    asked.aggregates = aggregates.value.split(/,(?![^(]*\))/).map(each => each.trim());
    asked.by = by.value.trim();
    asked.shows_answers = answers.checked;
    if (!answers.checked) return asked;
  } else {
    asked.sort = sort.value.trim();
    asked.unique = unique.checked;
  }
  if (limit.value) asked.limit = Number(limit.value);
  return asked;
}

const NOTHING = { rows: [], count: 0, groups: null, sources: null, fault: "", isCancelled: false };

/** Returns what is known after one more event of the stream. */
function after(before, { name, data }) {
  if (name === "open") return before;
  const content = JSON.parse(data, exact);
  if (name === "answers") {
    const added = content.rows.slice(0, Math.max(0, SHOWN - before.rows.length));
    const rows = added.map(({ source, answer }) => ({ "@publisher": source, ...answer }));
    return { ...before, rows: [...before.rows, ...rows], count: before.count + content.rows.length };
  }
  if (name === "groups" || name === "sources") return { ...before, [name]: content };
  return content.error ? { ...before, fault: content.error } : before;
}

export function Questions({ user }) {
  const [found, setFound] = useState(null), [isAsking, open, cancel] = useStream(user);
  const [combines, setCombines] = useState(false);
  useEffect(() => setFound(null), [user]);  // Another user may read others.
  const ask = event => {
    event.preventDefault();
    const asked = questionOf(event.target);
    setFound({ ...NOTHING, asked });
    open("/console/questions", asked, each => setFound(before => after(before, each)),
      (fault, isCancelled) => setFound(before => (
        isCancelled ? { ...before, isCancelled } : { ...before, fault })));
  };
  return html`<section aria-label="Question"><h2>Question</h2>
    <form class="bar" onSubmit=${ask}>
      <label>Question <input name="question" size="40" placeholder="price < 100" /></label>
      <label>Aggregates <input name="aggregates" size="24" placeholder="count, sum(price)"
        onInput=${event => setCombines(event.target.value.trim() !== "")} /></label>
      <label>By <input name="by" size="10" disabled=${!combines} /></label>
      <label><input name="answers" type="checkbox" disabled=${!combines} /> Answers, too</label>
      <label>Sort <input name="sort" size="10" placeholder="-price" disabled=${combines} /></label>
      <label><input name="unique" type="checkbox" disabled=${combines} /> Unique</label>
      <label>Limit <input name="limit" type="number" min="1" defaultValue="1000" /></label>
      <label>Seconds <input name="timeout" type="number" min="0.1" step="any" defaultValue="10" required />
      </label>
      <label>Links <input name="hops" type="number" min="0" placeholder="all" /></label>
      <button disabled=${isAsking}>Ask</button>
      <button type="button" disabled=${!isAsking} onClick=${cancel}>
        Cancel</button>
    </form>
    ${found && html`
      ${found.fault && html`<p class="error" role="alert">${found.fault}</p>`}
      <p role="status">${found.count} answers. ${found.sources && coverageOf(found)}</p>
      ${found.sources && html`<${Sources} of=${found.sources} />`}
      ${found.groups && html`<${Rows} label="Aggregates" count=${found.groups.count}
        rows=${found.groups.groups.slice(0, SHOWN)} />`}
      <${Rows} label="Answers" rows=${found.rows} count=${found.count} />`}
  </section>`;
}
