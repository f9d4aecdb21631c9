// A picture that is zoomed by wheel, buttons and keys, and moved by scrolling.
import { html, useEffect, useRef, useState } from "./libraries.js";

const STEP = 1.25;
const SCALES = [0.1, 8];

/** `children` are drawn in `width` times `height` units, at first one pixel each. */
export function Zoom({ label, role, width, height, children }) {
  const box = useRef(null), held = useRef({ x: 0, y: 0 }), [scale, setScale] = useState(1);
  const zoom = (factor, at) => setScale(before => {
    const { clientWidth, clientHeight, scrollLeft, scrollTop } = box.current;
    const scale = Math.min(Math.max(before * factor, SCALES[0]), SCALES[1]);
    const { x, y } = at || { x: clientWidth / 2, y: clientHeight / 2 };
    const by = scale / before;  // The point under the pointer stays there.
    held.current = { x: (scrollLeft + x) * by - x, y: (scrollTop + y) * by - y };
    return scale;
  });
  const fit = () => setScale(Math.min(box.current.clientWidth / width, SCALES[1]));
  useEffect(() => box.current.scrollTo(held.current.x, held.current.y), [scale]);
  useEffect(() => {
    const turn = event => {
      event.preventDefault();  // Else the page scrolls, so the listener may not be passive.
      const { left, top } = box.current.getBoundingClientRect();
      const at = { x: event.clientX - left, y: event.clientY - top };
      zoom(event.deltaY < 0 ? STEP : 1 / STEP, at);
    };
    box.current.addEventListener("wheel", turn, { passive: false });
    return () => box.current?.removeEventListener("wheel", turn);
  }, []);
  const press = event => {
    const act = { "+": () => zoom(STEP), "=": () => zoom(STEP), "-": () => zoom(1 / STEP), 0: fit };
    if (!event.ctrlKey && Object.hasOwn(act, event.key)) {
      act[event.key]();
      event.preventDefault();
    }
  };
  return html`<div class="zoom" onKeyDown=${press}>
    <p class="bar"><button onClick=${() => zoom(STEP)} aria-label="Zoom in">+</button>
      <button onClick=${() => zoom(1 / STEP)} aria-label="Zoom out">−</button>
      <button onClick=${fit}>Whole width</button>
      <span class="note">${(scale * 100).toFixed(0)} %</span></p>
    <div class="view" ref=${box} tabindex="0" role="region" aria-label=${label}>
      <svg role=${role} aria-label=${label} width=${width * scale} height=${height * scale}
        viewBox=${`0 0 ${width} ${height}`}>${children}</svg></div>
  </div>`;
}
