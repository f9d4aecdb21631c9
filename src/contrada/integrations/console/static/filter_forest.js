// The filters of a broker as a forest: below each one those that it covers, read as it is opened.
import { html, useEffect, useRef, useState } from "./libraries.js";
import { ask, inTurn } from "./requests.js";
import { Zoom } from "./zoom.js";

const ROW = 24;
const INDENT = 20;
const LETTER = 7.8;

/** Returns the trees over links along which a broker forwards filters. */
function treesOf(broker) {
  return (broker.links || []).flatMap(link => (link.owners || []).map(owner => ({
    neighbour: link.name, owner,
    title: `sent to ${link.name}${link.owners.length > 1 ? `, tree of ${owner}` : ""}`,
  })));
}

/** Returns the rows of the open part: nodes, and the places where more are left. */
function rowsOf(parts, open, above = -1, depth = 0, parent = null) {
  const part = parts.get(above), rows = [];
  for (const node of part ? part.nodes : []) {
    const at = { node, depth, parent };
    rows.push(at);
    if (open.has(node.number)) rows.push(...rowsOf(parts, open, node.number, depth + 1, at));
  }
  if (part && part.following >= 0) rows.push({ more: above, first: part.following, depth, parent });
  return rows;
}

/** Adds a part; one with `parents`, of all filters, has its nodes at several places. */
function merged(before, above, { filters, parents, following }) {
  const parts = new Map(before);
  const add = (place, node) => {
    const known = parts.get(place) || { nodes: [], following: -1 };
    parts.set(place, { ...known, nodes: [...known.nodes, node] });
  };
  filters.forEach((node, at) => {
    const parent = parents && parents[at] !== null ? filters[parents[at]].number : above;
    const below = parents ? parents.filter(each => each === at).length : node.below;
    add(parent, { ...node, below });
  });
  const known = parts.get(above) || { nodes: [] };
  parts.set(above, { ...known, following });
  return parts;
}

function Row({ row, isCurrent, isOpen, isMatching, onAct }) {
  const { node, depth } = row, x = depth * INDENT;
  if (!node) {
    return html`<text class="more" x=${x + 18} y="16">more …</text>`;
  }
  const sign = node.below ? (isOpen ? "▾" : "▸") : "·";
  return html`<text x=${x + 4} y="16">${sign}</text>
    <text x=${x + 18} y="16" class=${isMatching ? "yes" : ""}>${node.text}
      <tspan class="small"> ${node.below ? `(${node.below}) ` : ""}${node.parties.join(", ")}</tspan>
    </text>`;
}

/** `matching` has the numbers of the filters that match the test notification. */
export function Forest({ broker, matching, user }) {
  const trees = treesOf(broker);
  const [tree, setTree] = useState(trees.length ? 0 : -1), [asked, setAsked] = useState(0);
  const [parts, setParts] = useState(new Map()), [open, setOpen] = useState(new Set());
  const [current, setCurrent] = useState(0), [fault, setFault] = useState("");
  const newest = useRef(0), group = useRef(null);
  const { neighbour = "", owner = "" } = trees[tree] || {};
  const read = async (above, first) => {
    const turn = newest.current;
    try {
      const content = { broker: broker.name, neighbour, owner, above, first };
      const part = await inTurn("forest", () => (
        turn === newest.current ? ask("POST", "/console/forest", content) : null));
      if (turn !== newest.current) return;  // Another forest is shown meanwhile.
      setParts(before => merged(before, above, part));
      if (part.parents) setOpen(before => new Set([...before, ...part.filters.map(it => it.number)]));
      setFault("");
    } catch (error) {
      if (turn === newest.current) setFault(error.message);
    }
  };
  useEffect(() => {
    newest.current += 1;
    setParts(new Map());
    setOpen(new Set());
    setCurrent(0);
    read(-1, 0);
    return () => { newest.current += 1; };
  }, [broker.name, neighbour, owner, asked, user]);
  const rows = rowsOf(parts, open);
  rows.forEach((row, at) => { row.at = at; });
  const act = (row, wanted) => {
    if (!row.node) return read(row.more, row.first);
    const { number, below } = row.node, isOpen = open.has(number);
    if (!below || wanted === isOpen) return null;
    const next = new Set(open);
    isOpen ? next.delete(number) : next.add(number);
    setOpen(next);
    return !isOpen && !parts.has(number) ? read(number, 0) : null;
  };
  const go = at => {
    const place = Math.min(Math.max(at, 0), rows.length - 1);
    setCurrent(place);
    group.current.children[place]?.focus();
  };
  const press = (event, at) => {
    const row = rows[at], up = row.parent ? row.parent.at : -1;
    const keys = {
      ArrowDown: () => go(at + 1), ArrowUp: () => go(at - 1), Home: () => go(0),
      End: () => go(rows.length - 1), Enter: () => act(row), " ": () => act(row),
      ArrowRight: () => row.node && act(row, true),
      ArrowLeft: () => (row.node && open.has(row.node.number) ? act(row, false) : up >= 0 && go(up)),
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  };
  const letters = row => (row.node ? row.node.text.length + row.node.parties.join(", ").length + 8 : 8);
  const width = Math.max(300, ...rows.map(row => row.depth * INDENT + 30 + letters(row) * LETTER));
  return html`<p class="bar">
      <label>Forest <select value=${tree} onChange=${event => setTree(+event.target.value)}>
        ${trees.map(({ title }, at) => html`<option value=${at}>${title}</option>`)}
        <option value="-1">all filters, by age</option></select></label>
      <button onClick=${() => setAsked(asked + 1)}>Read again</button></p>
    ${fault && html`<p class="error" role="alert">${fault}</p>`}
    <${Zoom} label="Forest of filters" role="tree" width=${width} height=${ROW * rows.length + 8}>
      <g ref=${group} role="presentation">${rows.map((row, at) => html`
        <g key=${row.node ? row.node.number : `more ${row.more}`} class="row" role="treeitem"
          transform=${`translate(0 ${at * ROW})`} tabindex=${at === current ? 0 : -1}
          aria-level=${row.depth + 1}
          aria-label=${row.node ? `${row.node.text}, ${row.node.parties.join(", ")}` : "more"}
          aria-expanded=${row.node && row.node.below ? open.has(row.node.number) : null}
          onClick=${() => { setCurrent(at); act(row); }} onKeyDown=${event => press(event, at)}>
          <rect class="target" width=${width} height=${ROW} />
          ${row.parent && html`<path d=${`M${row.depth * INDENT - 12} ${
            (row.parent.at - at + 1) * ROW - 4}V12h10`} />`}
          <${Row} row=${row} isOpen=${row.node && open.has(row.node.number)}
            isMatching=${row.node && matching.has(row.node.number)} /></g>`)}</g>
    </${Zoom}>`;
}
