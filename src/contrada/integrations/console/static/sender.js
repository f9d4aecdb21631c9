// The sender: the notifications that a document becomes, before they are published.
import { html, useState } from "./libraries.js";
import { Editor } from "./editor.js";
import { ask, askInTurn, useLatest } from "./requests.js";

const STRATEGIES = ["multi", "last", "split", "index", "pattern", "daemon"];

const EXAMPLE = {
  text: "<backslash>\n  <story><title>Game</title><time>2001</time></story>\n"
    + "  <story><title>Two</title></story>\n</backslash>",
  strategy: "index",
  entries: "",
};

function Row({ row }) {
  return html`<tr class=${row.error ? "error" : ""}>
    <td>${row.number}</td>
    <td>${row.error || html`<code>${row.record}</code>`}
      ${row.document && html`<details><summary>Document of a receiver</summary>
        <pre>${row.document}</pre></details>`}</td></tr>`;
}

export function Sender({ user }) {
  const [document, setDocument] = useState(EXAMPLE), [loads, setLoads] = useState(0);
  const [said, setSaid] = useState("");
  const [answer, fault] = useLatest("/console/documents", document, user);
  const change = part => {
    setSaid("");
    setDocument(before => ({ ...before, ...part }));
  };
  const load = async text => {
    try {
      change({ text: await text });
      setLoads(before => before + 1);
    } catch (error) {
      setSaid(`not loaded: ${error.message}`);
    }
  };
  const fetchNamed = event => {
    event.preventDefault();
    const address = event.target.elements.address.value.trim();
    load(ask("POST", "/console/fetches", { address }).then(answer => answer.text));
  };
  const publish = async () => {
    try {
      const { published } = await askInTurn("POST", "/console/publications", document);
      setSaid(`published ${published}`);
    } catch (error) {
      setSaid(`not published: ${error.message}`);
    }
  };
  const rows = answer.records || [];
  return html`<div class="playground">
    <section aria-label="Document"><h2>Document, rows or objects</h2>
      <div class="bar"><label>File <input type="file"
        onChange=${event => event.target.files[0] && load(event.target.files[0].text())} /></label></div>
      <form class="bar" onSubmit=${fetchNamed}>
        <label>Address <input name="address" size="30" placeholder="https://" /></label>
        <button>Load</button></form>
      <${Editor} key=${loads} label="Document" value=${document.text} rows=${12}
        onChange=${text => change({ text })} hint="XML, JSON, or CSV with a header" />
      <div class="bar"><label>Strategy <select value=${document.strategy}
        onChange=${event => change({ strategy: event.target.value })}>
        ${STRATEGIES.map(each => html`<option value=${each}>${each}</option>`)}</select></label>
      <label>Entries <input value=${document.entries} size="12"
        onInput=${event => change({ entries: event.target.value.trim() })} /></label></div>
    </section>
    <section aria-label="Notifications"><h2>Notifications</h2>
      <button onClick=${publish} disabled=${!rows.length}>Publish ${rows.length}</button>
      <p role="status">${said}${answer.is_cut && " more than can be published from here"}</p>
      ${fault && html`<p class="error" role="alert">${fault}</p>`}
      <div class="scroll" tabindex="0"><table><thead><tr><th>Record</th><th>Attributes</th></tr></thead>
        <tbody>${rows.map(row => html`<${Row} row=${row} />`)}</tbody></table></div>
    </section>
  </div>`;
}
