// The brokers of a network as a layered graph: the nearest in each row, with links and clients.
import { html } from "./libraries.js";
import { Zoom } from "./zoom.js";

const ROW = 110;
const COLUMN = 140;

/** Returns both ends of each link once, with what each end says of it. */
export function linksOf(brokers) {
  const links = new Map();
  for (const broker of brokers.values()) {
    for (const link of broker.links || []) {
      const ends = [broker.name, link.name].sort(), key = JSON.stringify(ends);
      if (!links.has(key)) links.set(key, { ends, said: {} });
      links.get(key).said[broker.name] = link;
    }
  }
  return [...links.values()];
}

/** Returns the place of each broker: its distance from the first one is its row. */
function placesOf(brokers, links, wide) {
  const beside = new Map([...brokers.keys()].map(name => [name, []]));
  for (const { ends: [a, b] } of links) {
    beside.get(a)?.push(b);
    beside.get(b)?.push(a);
  }
  const rows = [], left = new Set(brokers.keys());
  while (left.size) {
    let row = [...left].slice(0, 1);  // The first one, or one that no link leads to.
    while (row.length) {
      row.forEach(name => left.delete(name));
      rows.push(row);
      row = [...new Set(row.flatMap(name => beside.get(name)))].filter(name => left.has(name));
    }
  }
  const width = Math.max(wide, ...rows.map(row => row.length * COLUMN));
  const places = new Map();
  rows.forEach((row, y) => row.forEach((name, x) => places.set(
    name, { x: width * (x + 0.5) / row.length, y: ROW * y + 40 })));
  return { places, width, height: ROW * rows.length };
}

function Broker({ broker, place: { x, y }, state, isSelected, onSelect }) {
  const clients = broker.isAway ? 0 : broker.counts.clients;
  const told = [broker.isAway && `away: ${broker.reason}`, `${clients} clients`, state];
  const press = event => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onSelect();
  };
  return html`<g class=${`broker ${broker.isAway ? "away" : ""} ${state ? "arrived" : ""}`}
    transform=${`translate(${x} ${y})`} tabindex="0" role="button" aria-pressed=${isSelected}
    aria-label=${[broker.name || "broker", ...told].filter(Boolean).join(", ")}
    onClick=${onSelect} onKeyDown=${press}>
    <rect x="-45" y="-15" width="90" height="30" rx="6" />
    <text text-anchor="middle" y="5">${(broker.name || "broker").slice(0, 11)}</text>
    ${clients > 0 && html`<line x1="45" y1="0" x2="51" y2="0" /><circle cx="60" r="9" />
      <text class="small" text-anchor="middle" x="60" y="4">${clients}</text>`}
    <text class="small" text-anchor="middle" y="28">${broker.isAway ? "away" : state}</text>
  </g>`;
}

/** `hops` is the way of a notification, `sent` the rates by `from to`. */
export function Graph({ brokers, hops, sent, selected, onSelect, wide }) {
  const links = linksOf(brokers), { places, width, height } = placesOf(brokers, links, wide);
  const way = new Set(hops.map(hop => JSON.stringify([hop.came_from, hop.broker].sort())));
  const states = new Map(hops.map(hop => [
    hop.broker, hop.reason ? "stops here" : hop.counts.delivering ? "delivers" : "forwards"]));
  return html`<${Zoom} label="Graph of the network" role="group" width=${width} height=${height}>
    ${links.map(({ ends, said }) => {
      const [a, b] = ends.map(name => places.get(name));
      if (!a || !b) return null;
      const isUsed = ends.every(name => !brokers.get(name).isAway)
        && Object.values(said).every(link => !link.unused);
      const rates = ends.map((name, at) => sent[JSON.stringify([name, ends[1 - at]])])
        .filter(Boolean).join(" / ");
      return html`<g class=${`link ${isUsed ? "" : "unused"} ${
        way.has(JSON.stringify(ends)) ? "way" : ""}`}>
        <line x1=${a.x} y1=${a.y} x2=${b.x} y2=${b.y} />
        <text class="small" x=${(a.x + b.x) / 2 + 6} y=${(a.y + b.y) / 2 + 6}>${
          rates}</text></g>`;
    })}
    ${[...places].map(([name, place]) => html`<${Broker} key=${name} broker=${brokers.get(name)}
      place=${place} state=${states.get(name) || ""} isSelected=${name === selected}
      onSelect=${() => onSelect(name)} />`)}
  </${Zoom}>`;
}
