// A text editor with completion and marked errors, as a component.
import {
  EditorState, EditorView, autocompletion, completionKeymap, defaultKeymap, history, historyKeymap,
  html, keymap, placeholder, setDiagnostics, useEffect, useRef,
} from "./libraries.js";

/** The words of the filter syntax. */
export const KEYWORDS = document.querySelector("meta[name=keywords]").content.split(" ");

const WORDS = KEYWORDS.map(label => ({ label, type: "keyword" }));

// The page allows only style sheets with its nonce.
const NONCE = document.querySelector("script").nonce;

/** Completes the words of the filter syntax, and the names that `names()` returns. */
function completion(names) {
  return context => {
    const word = context.matchBefore(/[\w.@]+/);
    if (!word && !context.explicit) return null;
    const options = names().map(label => ({ label, type: "property", boost: 1 })).concat(WORDS);
    return { from: word ? word.from : context.pos, options };
  };
}

/** Returns the offset of a place that counts lines and columns from 1. */
function offset(doc, { line, column }) {
  const at = doc.line(Math.min(Math.max(line || 1, 1), doc.lines));
  return Math.min(at.from + Math.max(column || 1, 1) - 1, at.to);
}

/**
 * `value` is the text at first: a later one needs a new `key`, since the user types meanwhile.
 * `error` is undefined, or has `error`, and `line` and `column` where the place is known.
 */
export function Editor({ label, value, onChange, error, names, hint, rows }) {
  const host = useRef(null), view = useRef(null), changed = useRef(onChange), known = useRef(names);
  changed.current = onChange;
  known.current = names;
  useEffect(() => {
    const made = new EditorView({
      parent: host.current,
      state: EditorState.create({
        doc: value,
        extensions: [
          history(),
          keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap]),
          names ? autocompletion({ override: [completion(() => known.current)] }) : [],
          placeholder(hint || ""),
          EditorView.cspNonce.of(NONCE),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": label }),
          EditorView.updateListener.of(update => {
            if (update.docChanged) changed.current(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = made;
    return () => made.destroy();
  }, []);
  useEffect(() => {
    const { state } = view.current, marks = [];
    if (error && error.line) {
      const from = offset(state.doc, error), to = Math.min(from + 1, state.doc.length);
      marks.push({ from: Math.min(from, to), to, severity: "error", message: error.error });
    }
    view.current.dispatch(setDiagnostics(state, marks));
  }, [error && error.error, error && error.line, error && error.column]);
  return html`<div class="editor" style=${`--rows: ${rows || 2}`}>
    <div ref=${host}></div>
    ${error && html`<p class="error" role="alert">
      ${error.line ? `line ${error.line}, column ${error.column}: ` : ""}${error.error}</p>`}
  </div>`;
}
