// What the pages of the console import from other authors, as one module.
import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
export { render } from "preact";
export { useEffect, useRef, useState } from "preact/hooks";
export { autocompletion, completionKeymap } from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { setDiagnostics } from "@codemirror/lint";
export { EditorState } from "@codemirror/state";
export { EditorView, keymap, placeholder } from "@codemirror/view";
export { default as uPlot } from "uplot";
