// Gossip: the figures of the thesis, simulated and calculated, and the tree of a running group.
import { html, uPlot, useEffect, useRef, useState } from "./libraries.js";
import { ask, usePoll, useStream } from "./requests.js";

const COLOURS = ["#2f81f7", "#d2691e", "#2da44e"];  // Of curves, on light and dark grounds.
const FIGURES = ["6.7", "6.8", "6.9", "6.10", "6.11", "6.12", "6.13"];

/** Each parameter: its option of the command, its letter, and the bounds of its field. */
const PARAMETERS = [
  ["branching", "Branching a", { min: 1 }],
  ["levels", "Levels l", { min: 1 }],
  ["redundancy", "Redundancy R", { min: 1 }],
  ["fanout", "Fanout F", { min: 1 }],
  ["rounds", "Rounds T", { min: 1 }],
  ["loss", "Loss ε", { min: 0, max: 0.999, step: "any" }],
  ["crashes", "Crashes τ", { min: 0, max: 0.999, step: "any" }],
  ["audience", "Audience D", { min: 0 }],
  ["interest", "Interest p₁ (6.10, 6.12)", { min: 0, max: 1, step: "any" }],
  ["runs", "Runs", { min: 1, max: 1000 }],
  ["seed", "Seed", { min: 0 }],
];

/** Returns the columns of a plot: x, and of each curve the mean, its interval, both analyses. */
function dataOf(rows, curves) {
  const xs = [...new Set(rows.map(row => row.x))].sort((a, b) => a - b);
  const columns = curves.flatMap(curve => {
    const known = new Map(rows.filter(row => row.curve === curve).map(row => [row.x, row]));
    return ["simulated", "low", "high", "refined", "printed"].map(name =>
      xs.map(x => known.get(x)?.[name] ?? null));
  });
  return [xs, ...columns];
}

function seriesOf(curve, at) {
  const stroke = COLOURS[at % COLOURS.length], mark = curve && `, ${curve}`;
  const named = (label, more) => ({ label: label + mark, stroke, spanGaps: true, ...more });
  const bare = { width: 0, points: { show: false } };
  return [
    named("simulated", { paths: () => null, points: { show: true, size: 6 } }),
    named("from", bare), named("to", bare),
    named("refined", { points: { show: false } }),
    named("as printed", { dash: [4, 4], points: { show: false } }),
  ];
}

function Plot({ rows, about }) {
  const host = useRef(null), plot = useRef(null);
  const curves = [...new Set(rows.map(row => row.curve))];
  const data = dataOf(rows, curves);
  useEffect(() => {
    const box = host.current, stroke = getComputedStyle(box).color;
    const axis = label => ({ label, stroke, grid: { stroke: "#8884" }, ticks: { stroke: "#8884" } });
    const width = () => Math.min(800, box.clientWidth);
    const bands = curves.map((_, at) => ({
      series: [5 * at + 3, 5 * at + 2], fill: `${COLOURS[at % COLOURS.length]}33`,
    }));
    plot.current = new uPlot({
      width: width(), height: 320, scales: { x: { time: false } }, bands,
      axes: [axis(about.varied), axis(about.measure)],
      series: [{ label: about.varied }, ...curves.flatMap(seriesOf)],
    }, data, box);
    const fitting = new ResizeObserver(() => plot.current.setSize({ width: width(), height: 320 }));
    fitting.observe(box);
    return () => {
      fitting.disconnect();
      plot.current.destroy();
    };
  }, [about, curves.length]);
  useEffect(() => plot.current.setData(data), [rows]);
  return html`<div ref=${host} role="img" aria-label=${`Plot of ${about.title}`}></div>`;
}

const fixed = value => value === null ? "unknown" : value.toFixed(4);

function Points({ rows, about }) {
  const heads = [about.varied, "Curve", "Simulated", "From, to", "Refined", "As printed",
    "Nearly all", "Messages"];
  return html`<div class="scroll" role="region" aria-label="Points" tabindex="0"><table>
    <thead><tr>${heads.map(each => html`<th scope="col">${each}</th>`)}</tr></thead>
    <tbody>${rows.map(row => html`<tr><th scope="row">${row.x}</th><td>${row.curve}</td>
      <td>${fixed(row.simulated)}</td><td>${fixed(row.low)}, ${fixed(row.high)}</td>
      <td>${fixed(row.refined)}</td><td>${fixed(row.printed)}</td>
      <td>${(100 * row.nearly_all).toFixed(0)}%</td><td>${row.messages.toFixed(0)}</td></tr>`)}
    </tbody></table></div>`;
}

function commandOf(request) {
  const options = Object.entries(request).map(([name, value]) => `--${name} ${value}`);
  return `contrada simulate gossip ${options.join(" ")}`;
}

function Figures({ user }) {
  const [request, setRequest] = useState(null), [about, setAbout] = useState(null);
  const [rows, setRows] = useState([]), [fault, setFault] = useState("");
  const [isRunning, open, stop] = useStream(user);
  const run = event => {
    event.preventDefault();
    const { elements } = event.target;
    const wanted = { figure: elements.figure.value };
    for (const [name] of PARAMETERS) {
      if (elements[name].value !== "") wanted[name] = Number(elements[name].value);
    }
    setRequest(wanted);
    setAbout(null);
    setRows([]);
    setFault("");
    open("/console/figures", wanted, ({ name, data }) => {
      const content = JSON.parse(data || "{}");
      if (name === "figure") setAbout(content);
      else if (name === "point") setRows(before => [...before, content]);
      else if (content.error) setFault(content.error);
    }, (reason, isStopped) => {
      setFault(isStopped ? "stopped: these are the points so far" : reason);
    });
  };
  return html`<section aria-label="Figures"><h2>Figures</h2>
    <form class="bar" onSubmit=${run}>
      <label>Figure <select name="figure">${FIGURES.map(each => html`
        <option value=${each}>${each}</option>`)}</select></label>
      ${PARAMETERS.map(([name, label, bounds]) => html`<label>${label} <input name=${name}
        type="number" ...${bounds} placeholder="own" defaultValue=${name === "runs" ? 10 : ""} /></label>`)}
      <button disabled=${isRunning}>Simulate</button>
      <button type="button" disabled=${!isRunning} onClick=${stop}>
        Stop</button>
    </form>
    ${fault && html`<p class="error" role="alert">${fault}</p>`}
    ${about && html`<h3>Figure ${request.figure}: ${about.title}</h3><p>${about.group}</p>
      <p role="status">${rows.length} of ${about.points} points</p>
      <p class="note">The same: <code>${commandOf(request)}</code></p>`}
    ${about && rows.length > 0 && html`<${Plot} rows=${rows} about=${about} />
      <${Points} rows=${rows} about=${about} />`}
  </section>`;
}

/** The lines of one level; below the participant's own one, those of the level under it. */
function Level({ levels, at }) {
  if (at === levels.length) return null;
  const { level, lines, count } = levels[at];
  return html`<ul>${lines.map(line => html`<li key=${line.address}
      class=${line.is_own ? "yes" : line.is_silent ? "error" : ""}>
    <code>${line.address}${".*".repeat(level - 1)}</code>${" "}
    <span>${level > 1 && `${line.count} participants, `}
      ${level > 1 ? "delegates " : "at "}${line.delegates.map(each =>
        level > 1 ? `${each.address} (${each.place})` : each.place).join(", ")}</span>
    <span class="note"> ${line.filters || "no filter"}${
      line.is_silent ? `, silent for ${line.age} rounds` : ""}</span>
    ${line.is_own && html`<${Level} levels=${levels} at=${at + 1} />`}</li>`)}
    ${count > lines.length && html`<li class="note">and ${count - lines.length} more</li>`}</ul>`;
}

function Counts({ title, counts, before, seconds }) {
  const entries = Object.entries(counts);
  if (!entries.length) return null;
  return html`<h3>${title}</h3><table aria-label=${title}><tbody>${entries.map(([name, count]) =>
    html`<tr><th scope="row">${name.replace("_", " ")}</th><td>${count}</td>
      <td>${before && `${((count - (before[name] || 0)) / seconds).toFixed(1)}/s`}</td></tr>`)}
  </tbody></table>`;
}

function Group({ now, before }) {
  const seconds = before ? (now.now_us - before.now_us) / 1e6 : 0;
  const rates = name => ({ counts: now[name], before: seconds > 0 && before[name], seconds });
  const letters = Object.entries(now.parameters).map(([name, value]) => `${name} = ${value}`);
  const knowing = `${now.participants} participants as ${now.address} at ${now.place} knows them: `
    + `${now.known} others in its view of at most ${now.view_size} entries.`;
  const about = `${now.protocol}, ${letters.join(", ")}, a round in ${now.period_us / 1000} ms; `
    + `${now.buffered} events under way. Other subsystems are known by their delegates.`;
  return html`<p role="status">${knowing}</p><p class="note">${about}</p>
    <${Level} levels=${now.levels} at=${0} />
    <${Counts} title="Counts" ...${rates("counts")} />
    <${Counts} title="Messages sent" ...${rates("messages")} />
    <${Counts} title="Refused" ...${rates("refused")} />
    <${Counts} title="Dropped" ...${rates("dropped")} />`;
}

function Groups({ user }) {
  const [now, setNow] = useState(null), [before, setBefore] = useState([]);
  const [fault, setFault] = useState("");
  const last = useRef([]);
  useEffect(() => {
    last.current = [];
    setNow(null);  // Another user may see no group.
  }, [user]);
  usePoll(async isAsked => {
    try {
      const { groups } = await ask("GET", "/console/groups");
      if (!isAsked()) return;
      setBefore(last.current);
      setNow(groups);
      setFault("");
      last.current = groups;
    } catch (error) {
      if (isAsked()) setFault(error.message);
    }
  }, [user]);
  return html`<section aria-label="Running group"><h2>Running group</h2>
    ${fault && html`<p class="error" role="alert">${fault}</p>`}
    ${now && !now.length && html`<p>No participant of a group runs in this process. To see one:
      <code>contrada gossip start --key group.key --http 8081</code>, or in Python
      <code>Gateway(…, groups=[node])</code>.</p>`}
    ${now && now.map((each, at) => html`<${Group} key=${each.place} now=${each} before=${before[at]} />`)}
  </section>`;
}

export function Gossip({ user }) {
  return html`<div class="stack"><${Figures} user=${user} /><${Groups} user=${user} /></div>`;
}
