// The frame of the console: its pages, and the token of its user.
import { html, render, useEffect, useRef, useState } from "./libraries.js";
import { Application } from "./application.js";
import { Gossip } from "./gossip.js";
import { NetworkView } from "./network.js";
import { Playground } from "./playground.js";
import { Questions } from "./questions.js";
import { Queues } from "./queues.js";
import { Receiver } from "./receiver.js";
import { Sender } from "./sender.js";
import { setToken, useLost, watchBroker } from "./requests.js";

const PAGES = {
  playground: ["Playground", Playground],
  receiver: ["Receiver", Receiver],
  sender: ["Sender", Sender],
  queues: ["Queues", Queues],
  questions: ["Questions", Questions],
  network: ["Network", NetworkView],
  gossip: ["Gossip", Gossip],
  application: ["Application", Application],
};

// Pages that go on while others are shown: their subscriptions and texts would be lost.
const KEPT = ["playground", "receiver", "sender", "application"];

function pageOf(hash) {
  const name = hash.slice(1).split("?")[0];
  return Object.hasOwn(PAGES, name) ? name : "playground";
}

function Console() {
  const [page, setPage] = useState(pageOf(location.hash));
  const [accepted, setAccepted] = useState({ name: "", count: 0 }), lost = useLost();
  useEffect(() => {
    const show = () => setPage(pageOf(location.hash));
    addEventListener("hashchange", show);
    return () => removeEventListener("hashchange", show);
  }, []);
  useEffect(() => {
    const ended = new AbortController();
    watchBroker(ended.signal);
    return () => ended.abort();
  }, []);
  const logIn = event => {
    event.preventDefault();
    const token = event.target.elements.token.value.trim();
    event.target.reset();
    setToken(token);
    setAccepted(before => ({ name: token.split(".")[0], count: before.count + 1 }));
  };
  const opened = useRef(new Set()).current.add(page);
  const present = Object.keys(PAGES).filter(name => name === page || KEPT.includes(name) && opened.has(name));
  return html`
    <header>
      <h1>Contrada</h1>
      <nav aria-label="Pages">${Object.entries(PAGES).map(([name, [title]]) => html`
        <a href=${`#${name}`} aria-current=${name === page ? "page" : null}>${title}</a>`)}
      </nav>
      <form onSubmit=${logIn}>
        ${accepted.name && html`<span class="note">as ${accepted.name}</span>`}
        <label>Token <input name="token" type="password" autocomplete="off"
          placeholder="NAME.SECRET" /></label>
        <button>Use</button>
      </form>
    </header>
    ${lost && html`<p class="lost" role="alert">The broker does not answer. This page goes on as
      soon as it does.</p>`}
    <main>${present.map(name => html`<div key=${name} hidden=${name !== page}>
      <${PAGES[name][1]} user=${accepted.count} /></div>`)}</main>`;
}

render(html`<${Console} />`, document.body);
