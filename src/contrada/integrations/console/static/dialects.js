// The choice of a dialect of filters and rules.
import { html } from "./libraries.js";

const DIALECTS = ["", ...document.querySelector("meta[name=dialects]").content.split(" ")];

export function Dialect({ value, onChange }) {
  return html`<label>Dialect <select value=${value} onChange=${e => onChange(e.target.value)}>
    ${DIALECTS.map(each => html`<option value=${each}>${each || "Contrada"}</option>`)}
  </select></label>`;
}
