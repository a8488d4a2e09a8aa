// Pointers and keys of the map, as what they mean: a click, a lasso, a pan, a zoom, a step of the cursor.

/** A pointer that moves less than this, in pixels, clicks. */
const CLICK = 6;

/** The shortest line of a lasso, in pixels. */
const STEP = 3;

/**
 * Listens on the canvas. Points are relative to it. `on` has `hover(point or null)`, `click(point, isChoice)`,
 * `lasso(points, isDone)` with null when it is given up, `pan(x, y)`, `zoom(factor, x, y)`, `step(x, y)`, `enter()`,
 * `toggle()`, `fit()`, `focus(isKeyboard)`, `blur()` and `isSelecting()`: with it, or with Shift, a drag draws a lasso.
 */
export function listen(canvas, on) {
  const pointers = new Map();
  let travelled = 0;
  let drawn = null; // The points of a lasso.
  const point = (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };
  const isChoice = (event) => event.shiftKey || on.isSelecting();

  canvas.addEventListener(
    'wheel',
    (event) => {
      event.preventDefault();
      const { x, y } = point(event);
      // A wheel counts in lines or in pixels.
      on.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), x, y);
    },
    { passive: false },
  );

  canvas.addEventListener('pointerdown', (event) => {
    canvas.setPointerCapture(event.pointerId);
    const at = point(event);
    pointers.set(event.pointerId, at);
    if (pointers.size > 1) {
      // Two fingers zoom.
      if (drawn) on.lasso((drawn = null), true);
      return;
    }
    travelled = 0;
    drawn = isChoice(event) ? [at] : null;
  });

  canvas.addEventListener('pointermove', (event) => {
    const at = point(event);
    const before = pointers.get(event.pointerId);
    if (!before) {
      on.hover(at);
      return;
    }
    pointers.set(event.pointerId, at);
    travelled += Math.abs(at.x - before.x) + Math.abs(at.y - before.y);
    if (drawn) {
      const { x, y } = drawn.at(-1);
      if (Math.hypot(at.x - x, at.y - y) < STEP) return;
      drawn.push(at);
      on.lasso(drawn, false);
    } else if (pointers.size === 2) {
      const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
      const distance = (it) => Math.hypot(it.x - other.x, it.y - other.y);
      on.zoom(distance(at) / Math.max(1, distance(before)), (at.x + other.x) / 2, (at.y + other.y) / 2);
    } else {
      on.pan(at.x - before.x, at.y - before.y);
    }
  });

  const end = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    const at = point(event);
    const isCancelled = event.type === 'pointercancel';
    const isClick = !isCancelled && travelled <= CLICK;
    if (drawn) on.lasso(isCancelled || isClick ? null : [...drawn, at], true);
    if (isClick) on.click(at, isChoice(event));
    drawn = null;
  };
  canvas.addEventListener('pointerup', end);
  canvas.addEventListener('pointercancel', end);
  canvas.addEventListener('pointerleave', () => on.hover(null));
  canvas.addEventListener('focus', () => on.focus(canvas.matches(':focus-visible')));
  canvas.addEventListener('blur', () => on.blur());

  const keys = {
    ArrowLeft: () => on.step(-1, 0),
    ArrowRight: () => on.step(1, 0),
    ArrowUp: () => on.step(0, -1),
    ArrowDown: () => on.step(0, 1),
    Enter: () => on.enter(),
    ' ': () => on.toggle(),
    '+': () => on.zoom(1.5),
    '=': () => on.zoom(1.5),
    '-': () => on.zoom(1 / 1.5),
    0: () => on.fit(),
  };
  canvas.addEventListener('keydown', (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
}
