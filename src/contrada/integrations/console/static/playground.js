// The playground: which records a filter, rule or pattern matches, and why the others do not.
import { html, useEffect, useRef, useState } from "./libraries.js";
import { Dialect } from "./dialects.js";
import { Editor } from "./editor.js";
import { exact, stream, useLatest } from "./requests.js";

const SEEN = 1_000;  // Events that are collected. Beyond it: the last ones.
const SEEN_CHARACTERS = 100_000;  // Of the records made of them. Beyond it: the last ones.

const EXAMPLE = {
  text: 'symbol = "DIS" and price < 100',
  dialect: "",
  other: "price < 200",
  other_dialect: "",
  records: '{"symbol": "DIS", "price": 98.5}\n{"symbol": "DIS", "price": "98.5"}\n'
    + '{"symbol": "IBM", "Price": 120}',
};

/** Returns the trial of a link to this page, or the example: of a link only its known texts. */
function linked() {
  const text = location.hash.split("?")[1];
  try {
    const bytes = Uint8Array.from(atob(text), each => each.charCodeAt(0));
    const given = JSON.parse(new TextDecoder().decode(bytes));
    const known = Object.keys(EXAMPLE).filter(name => typeof given[name] === "string");
    return { ...EXAMPLE, ...Object.fromEntries(known.map(name => [name, given[name]])) };
  } catch {
    return EXAMPLE;
  }
}

/** Returns the link of a trial; texts that it lacks are those of the example. */
export function linkOf(trial) {
  const bytes = new TextEncoder().encode(JSON.stringify(trial));
  return `#playground?${btoa(Array.from(bytes, each => String.fromCharCode(each)).join(""))}`;
}

/** Returns the last lines that fit. */
function lastOf(lines) {
  let size = 0, first = lines.length;
  while (first > 0 && size + lines[first - 1].length < SEEN_CHARACTERS) size += lines[--first].length + 1;
  return lines.slice(first).join("\n");
}

/** Collects events that the user may see, and calls `onRecords` with the last ones. */
function Collector({ user, onRecords }) {
  const [isOn, setOn] = useState(false), [count, setCount] = useState(0), [fault, setFault] = useState("");
  const lines = useRef([]);
  useEffect(() => {
    if (!isOn) return undefined;
    const ended = new AbortController();
    const read = async () => {
      try {
        const path = "/subscribe?filter=everything&form=notification";
        for await (const { name, data } of stream(path, ended.signal)) {
          if (name !== "message") continue;
          lines.current.push(JSON.stringify(JSON.parse(data, exact).notification.attributes));
          if (lines.current.length >= 2 * SEEN) lines.current = lines.current.slice(-SEEN);
          setCount(before => before + 1);
        }
        setFault("ended by the broker");
      } catch (error) {
        if (ended.signal.aborted) return;
        setFault(error.message);
      }
      setOn(false);
    };
    read();
    return () => ended.abort();
  }, [isOn, user]);
  const begin = () => {
    lines.current = [];
    setCount(0);
    setFault("");
    setOn(true);
  };
  return html`<div class="bar"><button onClick=${begin} disabled=${isOn}>Collect events</button>
    ${(isOn || count > 0) && html`<span role="status">${count} seen</span>
      <button disabled=${!count} onClick=${() => { setOn(false); onRecords(lastOf(lines.current.slice(-SEEN))); }}>
        Try the last ones</button>`}
    ${fault && html`<span class="error" role="alert">${fault}</span>`}</div>`;
}

function Read({ found }) {
  if (!found || found.error) return null;
  return html`<p class="read"><code>${found.text}</code></p>
    ${found.residue && html`<p class="note">Evaluated beside the filters: ${found.residue}</p>`}
    ${(found.notes || []).map(each => html`<p class="note">${each}</p>`)}`;
}

const YES_NO = { true: "yes", false: "no" };

function Relation({ of }) {
  if (!of) return null;
  if (of.error) return html`<p class="note">${of.error}</p>`;
  const rows = [
    ["The first covers the second", of.covers, "only_other"],
    ["The second covers the first", of.covered, "only_first"],
    ["A notification can match both", of.meets, "both"],
  ];
  return html`<table class="relation"><tbody>${rows.map(([said, holds, name]) => html`<tr>
    <th scope="row">${said}</th><td class=${YES_NO[holds]}>${YES_NO[holds]}</td>
    <td>${of.examples[name] && html`<code>${of.examples[name]}</code>`}</td></tr>`)}
  </tbody></table>`;
}

function Row({ row }) {
  const mark = row.error ? "error" : row.matches === undefined ? "" : YES_NO[row.matches];
  return html`<tr class=${mark}>
    <td>${row.number}</td>
    <td>${row.error ? "unreadable" : { yes: "matches", no: "no match" }[mark]}</td>
    <td><code>${row.record}</code>
      ${row.error && html`<p class="error">${row.error}</p>`}
      ${(row.causes || []).map(each => html`<p class="cause">${each}</p>`)}</td>
  </tr>`;
}

/** Returns the names of attributes in records, for completion. */
function namesIn(answer) {
  const names = new Set();
  for (const { record } of answer.records || []) {
    for (const name of Object.keys(record ? JSON.parse(record) : {})) names.add(name);
  }
  return [...names];
}

/** `user` changes with the token: the trial is then asked again. */
export function Playground({ user }) {
  const [trial, setTrial] = useState(linked), [links, setLinks] = useState(0);
  const [answer, fault] = useLatest("/console/trials", trial, user);
  const change = part => setTrial(before => ({ ...before, ...part }));
  useEffect(() => {
    const show = () => {
      if (!location.hash.startsWith("#playground?")) return;
      setTrial(linked());
      setLinks(before => before + 1);
    };
    addEventListener("hashchange", show);
    return () => removeEventListener("hashchange", show);
  }, []);
  const share = async () => {
    const link = linkOf(trial);
    history.replaceState(null, "", link);
    await navigator.clipboard?.writeText(location.href);
  };
  const names = namesIn(answer), rows = answer.records || [], matches = answer.matches;
  const count = matches ? matches.length : rows.filter(each => each.matches).length;
  return html`<div class="playground" key=${links}>
    <section aria-label="Filter">
      <h2>Filter, rule or pattern</h2>
      <div class="bar">
        <${Dialect} value=${trial.dialect} onChange=${dialect => change({ dialect })} />
        <button onClick=${share}>Copy a link</button>
      </div>
      <${Editor} label="Filter" value=${trial.text} names=${names} error=${errorOf(answer.filter)}
        onChange=${text => change({ text })} hint="price < 100" rows=${4} />
      <${Read} found=${answer.filter} />
      ${Object.entries(answer.dialects || {}).map(([name, written]) => html`
        <details><summary>${name}</summary><code>${written.text || written.error}</code></details>`)}
    </section>
    <section aria-label="Another filter">
      <h2>Compare with</h2>
      <div class="bar"><${Dialect} value=${trial.other_dialect}
        onChange=${other_dialect => change({ other_dialect })} /></div>
      <${Editor} label="Another filter" value=${trial.other} names=${names}
        error=${errorOf(answer.other)} onChange=${other => change({ other })} rows=${2} />
      <${Read} found=${answer.other} />
      <${Relation} of=${answer.relation} />
    </section>
    <section aria-label="Records">
      <h2>Records</h2>
      <${Collector} user=${user} onRecords=${records => {
        change({ records });
        setLinks(before => before + 1);
      }} />
      <${Editor} label="Records" value=${trial.records} onChange=${records => change({ records })}
        hint="JSON, CSV with a header, or XML" rows=${6} />
      ${fault && html`<p class="error" role="alert">${fault}</p>`}
      <p role="status">${count} of ${rows.length} ${matches ? "are matches" : "match"}
        ${answer.is_cut && ", the first records only"}</p>
      ${matches && html`<ul>${matches.map(each => html`
        <li>records ${each.map(at => rows[at].number).join(", ")}</li>`)}</ul>`}
      <div class="scroll" tabindex="0"><table><thead><tr><th>Record</th><th>Answer</th><th>Attributes</th></tr>
        </thead><tbody>${rows.map(row => html`<${Row} row=${row} />`)}</tbody></table></div>
    </section>
  </div>`;
}

function errorOf(found) {
  return found && found.error ? found : undefined;
}
