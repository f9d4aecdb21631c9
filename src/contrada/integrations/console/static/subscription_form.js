// The form of a subscription: its text, and rows of constraints that produce the text.
import { html, useEffect, useState } from "./libraries.js";
import { Dialect } from "./dialects.js";
import { KEYWORDS } from "./editor.js";
import { ask } from "./requests.js";

const OPERATORS = [
  "=", "!=", "<", "<=", ">", ">=", "between", "in", "not in", "prefix", "suffix", "contains",
  "wildcard", "matches", "cidr", "exists", "absent",
];
const OF_TEXTS = ["prefix", "suffix", "contains", "wildcard", "matches", "cidr"];
const WITHOUT_VALUE = ["exists", "absent"];
const UNITS = ["s", "min", "h", "d"];
const PLAIN_NAME = /^@?[A-Za-z_](\w|[.\-/:@$#](?=.*[\w$#]$))*$/;
const LITERAL = /^([+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|true|false|null|@\d[\dT:.+\-Z]*|x?"([^"\\]|\\.)*"|x?'([^'\\]|\\.)*')$/i;
const VALUE = /\s*("([^"\\]|\\.)*"|'([^'\\]|\\.)*')\s*(?=,|$)|[^,]+/g;  // A quoted one may have commas.

const EMPTY = { join: "and", name: "", operator: "=", value: "" };
const BUILT = { type: "", rows: [EMPTY], by: "", within: "", unit: "min", every: false };

function nameText(name) {
  const isPlain = PLAIN_NAME.test(name) && !KEYWORDS.includes(name);
  return isPlain ? name : `\`${name.replaceAll("`", "``")}\``;
}

const quoted = text => /^(["']).*\1$/.test(text) ? text : JSON.stringify(text);

const valueText = text => LITERAL.test(text) ? text : quoted(text);

function constraintText({ name, operator, value }) {
  const named = `${nameText(name.trim())} ${operator}`, text = value.trim();
  if (WITHOUT_VALUE.includes(operator)) return named;
  if (OF_TEXTS.includes(operator)) return `${named} ${quoted(text)}`;
  const values = (text.match(VALUE) ?? [""]).map(each => valueText(each.trim()));
  if (operator === "between") return `${named} ${values.join(" and ")}`;
  return operator.endsWith("in") ? `${named} (${values.join(", ")})` : `${named} ${valueText(text)}`;
}

/** Returns the text of a form: a filter, or a pattern of the filters between each `then`. */
export function textOf({ type, rows, by, within, unit, every }) {
  const steps = [[]];
  for (const row of rows.filter(each => each.name.trim())) {
    if (row.join === "then" && steps[0].length) steps.push([]);
    const step = steps.at(-1);
    step.push(step.length ? `${row.join} ${constraintText(row)}` : constraintText(row));
  }
  const texts = steps.map(each => each.join(" "));
  if (type.trim()) {
    const mark = `${nameText(`@is.${type.trim()}`)} exists`;
    const hasOr = rows.some(each => each.join === "or");
    texts[0] = texts[0] ? `${mark} and ${hasOr ? `(${texts[0]})` : texts[0]}` : mark;
  }
  if (texts.length < 2) return texts[0];
  const names = by.split(",").map(each => each.trim()).filter(Boolean).map(nameText);
  return `${every ? "every " : ""}${texts.join(" -> ")}${names.length ? ` by ${names.join(", ")}` : ""}${
    within ? ` within ${within} ${unit}` : ""}`;
}

function Choice({ label, value, options, onChange }) {
  return html`<label>${label} <select value=${value} onChange=${event => onChange(event.target.value)}>
    ${options.map(each => html`<option>${each}</option>`)}</select></label>`;
}

function Text({ label, value, onChange, size, ...more }) {
  return html`<label>${label} <input size=${size} value=${value} ...${more}
    onInput=${event => onChange(event.target.value)} /></label>`;
}

/** Rows of constraints, and a type; `types` were seen, those of the broker are asked for. */
function Builder({ types, names, onText }) {
  const [built, setBuilt] = useState(BUILT), [known, setKnown] = useState([]);
  useEffect(() => {
    ask("GET", "/console/types").then(answer => setKnown(answer.types), () => setKnown([]));
  }, []);
  const change = part => {
    const next = { ...built, ...part };
    setBuilt(next);
    onText(textOf(next));
  };
  const changeRow = (at, part) => change({
    rows: built.rows.map((row, place) => place === at ? { ...row, ...part } : row),
  });
  const isPattern = built.rows.some((row, at) => at && row.join === "then");
  return html`<div class="bar">
      <${Text} label="Type" size="16" value=${built.type} list="types"
        onChange=${type => change({ type })} />
      <span class="note">with its subtypes</span>
      <datalist id="types">${[...new Set([...types, ...known])].map(each => html`
        <option value=${each} />`)}</datalist>
      <datalist id="names">${names.map(each => html`<option value=${each} />`)}</datalist>
    </div>
    ${built.rows.map((row, at) => html`<div class="bar" role="group" aria-label=${`Constraint ${at + 1}`}>
      ${at > 0 && html`<${Choice} label="Join" value=${row.join} options=${["and", "or", "then"]}
        onChange=${join => changeRow(at, { join })} />`}
      <${Text} label="Name" size="16" value=${row.name} list="names"
        onChange=${name => changeRow(at, { name })} />
      <${Choice} label="Operator" value=${row.operator} options=${OPERATORS}
        onChange=${operator => changeRow(at, { operator })} />
      ${!WITHOUT_VALUE.includes(row.operator) && html`<${Text} label="Value" size="16"
        value=${row.value} onChange=${value => changeRow(at, { value })} />`}
      ${built.rows.length > 1 && html`<button type="button"
        onClick=${() => change({ rows: built.rows.filter(each => each !== row) })}>Remove</button>`}
    </div>`)}
    <div class="bar">
      <button type="button" onClick=${() => change({ rows: [...built.rows, EMPTY] })}>Add</button>
      ${isPattern && html`
        <${Text} label="By" size="12" value=${built.by} list="names" onChange=${by => change({ by })} />
        <${Text} label="Within" size="4" value=${built.within} type="number" min="1"
          onChange=${within => change({ within })} />
        <${Choice} label="Unit" value=${built.unit} options=${UNITS} onChange=${unit => change({ unit })} />
        <label><input type="checkbox" checked=${built.every}
          onChange=${event => change({ every: event.target.checked })} /> Every beginning</label>`}
    </div>`;
}

/** Calls `onSubscribe` with the parameters of an event stream, and what the page shows of them. */
export function SubscriptionForm({ types, names, onSubscribe }) {
  const [text, setText] = useState(""), [dialect, setDialect] = useState("");
  const [durable, setDurable] = useState(""), [isManual, setManual] = useState(false);
  const subscribe = event => {
    event.preventDefault();
    const filter = text.trim(), name = durable.trim();
    const given = { filter, dialect: filter && dialect, durable: name, form: "notification" };
    if (name && isManual) given.acknowledge = "manual";
    const query = new URLSearchParams(Object.entries(given).filter(([, value]) => value));
    if (filter || name) onSubscribe({ query, label: filter || name, durable: name, isManual: name && isManual });
  };
  return html`<form onSubmit=${subscribe}>
    <div class="bar">
      <${Text} label="Filter" size="40" value=${text} onChange=${setText} placeholder="price < 100" />
      <${Dialect} value=${dialect} onChange=${setDialect} />
      <${Text} label="Durable name" size="12" value=${durable} onChange=${setDurable} />
      ${durable.trim() && html`<label><input type="checkbox" checked=${isManual}
        onChange=${event => setManual(event.target.checked)} /> Acknowledge by hand</label>`}
      <button>Subscribe</button>
    </div>
    <details><summary>Form</summary><${Builder} types=${types} names=${names} onText=${built => {
      setText(built);
      setDialect("");
    }} /></details>
  </form>`;
}
