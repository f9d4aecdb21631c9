// An application as its AsyncAPI document describes it: operations, filters and schemas of events.
import { html, useState } from "./libraries.js";
import { linkOf } from "./playground.js";

const CHARACTERS_MAX = 1_000_000;  // Of a document. Beyond it: it is not shown.

/** Returns the value at a reference such as `#/channels/desk`. Throws an Error without one. */
function at(root, reference) {
  return reference.slice(2).split("/").reduce((of, escaped) => {
    const key = escaped.replaceAll("~1", "/").replaceAll("~0", "~");
    if (!Object.hasOwn(of, key)) throw new Error(`${reference}: there is no such part`);
    return of[key];
  }, root);
}

const resolved = (root, part) => part?.$ref ? at(root, part.$ref) : part;

/** Returns the type of a JSON Schema in words; references are the names of other schemas. */
function typeOf(schema) {
  if (typeof schema !== "object" || schema === null) return "any";
  const { $ref, anyOf, oneOf, type, format, items, additionalProperties: others } = schema;
  if ($ref) return $ref.split("/").at(-1);
  if (anyOf || oneOf) return (anyOf || oneOf).map(typeOf).join(" or ");
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map(each => JSON.stringify(each)).join(" or ");
  if (Array.isArray(items)) return `[${items.map(typeOf).join(", ")}]`;
  if (type === "array") return `list of ${typeOf(items)}`;
  if (type === "object" && others) return `map to ${typeOf(others)}`;
  return [[type].flat().join(" or ") || "any", format].filter(Boolean).join(", ");
}

/** Returns what is shown of a schema: a type, or a row for each property. */
function schemaOf(schema, title) {
  const rows = Object.entries(schema?.properties || {}).map(([name, of]) => ({
    name, type: typeOf(of), isRequired: (schema.required || []).includes(name),
    note: [of.description, "default" in of && `default ${JSON.stringify(of.default)}`]
      .filter(Boolean).join("; "),
  }));
  return { title, type: typeOf(schema), description: schema?.description, rows };
}

function operationOf(root, [name, operation]) {
  const channel = resolved(root, operation.channel) || {};
  const reply = operation.reply && resolved(root, operation.reply.channel);
  const payloads = of => Object.values(of?.messages || {}).map(each => {
    const message = resolved(root, each);
    return schemaOf(message.payload, message.name || message.title);
  });
  return {
    name, action: operation.action, address: channel.address,
    summary: operation.summary, description: operation.description,
    filter: channel["x-contrada-filter"], durable: channel["x-contrada-durable"],
    messages: payloads(channel), replies: reply ? payloads(reply) : null,
  };
}

/** Returns what is shown of a document. Throws an Error with the reason where it is none. */
function documentOf(text) {
  if (text.length > CHARACTERS_MAX) throw new Error(`longer than ${CHARACTERS_MAX} characters`);
  const root = JSON.parse(text), version = root?.asyncapi;
  if (!String(version).startsWith("3.")) {
    throw new Error(`"asyncapi" is ${JSON.stringify(version) ?? "absent"}, expected "3.0.0"`);
  }
  const schemas = Object.entries(root.components?.schemas || {});
  return {
    title: root.info?.title, version: root.info?.version, description: root.info?.description,
    servers: Object.values(root.servers || {}).map(each => `${each.protocol}://${each.host}`),
    operations: Object.entries(root.operations || {}).map(each => operationOf(root, each)),
    schemas: schemas.map(([name, schema]) => schemaOf(schema, schema.title || name)),
  };
}

function Schema({ of }) {
  const { title, type, description, rows } = of;
  return html`<h4>${title || "Notification"}${type !== title && html` <span class="note">${type}</span>`}</h4>
    ${description && html`<p>${description}</p>`}
    ${rows.length > 0 && html`<table aria-label=${`Attributes of ${title}`}><thead>
      <tr><th>Name</th><th>Type</th><th>Required</th><th>Note</th></tr></thead><tbody>
      ${rows.map(row => html`<tr><th scope="row">${row.name}</th><td>${row.type}</td>
        <td>${row.isRequired ? "yes" : "no"}</td><td>${row.note}</td></tr>`)}</tbody></table>`}`;
}

function Operation({ of }) {
  const { name, action, address, summary, description, filter, durable, messages, replies } = of;
  const trial = { text: filter, dialect: "" };
  return html`<section aria-label=${`Operation ${name}`}>
    <h3>${name} <span class="note">${action}${replies ? "s requests, and replies" : "s events"}</span></h3>
    ${summary && html`<p>${summary}</p>`}
    ${description && html`<p>${description}</p>`}
    ${address && html`<p>Address <code>${address}</code></p>`}
    ${filter && html`<p>Filter <code>${filter}</code> <a href=${linkOf(trial)}>Try it</a></p>`}
    ${durable && html`<p>Durable subscription <code>${durable}</code></p>`}
    ${messages.map(each => html`<${Schema} of=${each} />`)}
    ${replies && html`<h4>Reply</h4>${replies.map(each => html`<${Schema} of=${each} />`)}`}
  </section>`;
}

export function Application() {
  const [shown, setShown] = useState(null), [fault, setFault] = useState("");
  const load = async file => {
    try {
      setShown(documentOf(await file.text()));
      setFault("");
    } catch (error) {
      setShown(null);
      setFault(`${file.name} is not shown: ${error.message}`);
    }
  };
  return html`<section aria-label="Application"><h2>Application</h2>
    <p>The AsyncAPI document of an application, as of <code>contrada asyncapi MODULE:APP</code>. It
      stays in this page.</p>
    <div class="bar"><label>Document <input type="file" accept=".json,application/json"
      onChange=${event => event.target.files[0] && load(event.target.files[0])} /></label></div>
    ${fault && html`<p class="error" role="alert">${fault}</p>`}
    ${shown && html`
      <h2>${shown.title} <span class="note">${shown.version}</span></h2>
      ${shown.description && html`<p>${shown.description}</p>`}
      ${shown.servers.map(each => html`<p>Broker <code>${each}</code></p>`)}
      ${shown.operations.map(each => html`<${Operation} of=${each} key=${each.name} />`)}
      ${shown.schemas.length > 0 && html`<section aria-label="Schemas"><h3>Schemas</h3>
        ${shown.schemas.map(each => html`<${Schema} of=${each} />`)}</section>`}`}
  </section>`;
}
