// Colours of levels and marks of tiles, on the map and in its legend.
//
// A level differs from the next in lightness, which all people see; marks differ in shape.

/** Flags of a node. */
export const CORDONED = 1;
export const TAINTED = 2;
export const STRANDED = 4;
/** How a node differs from the reading that it is compared with. */
export const ADDED = 8;
export const FULLER = 16;
export const EMPTIER = 32;
export const REMOVED = 64;

/** The flags of the state of a node. Every cordoned node has a taint, which is no mark of its own. */
export const states = ({ is_cordoned: isCordoned, taints }) =>
  (isCordoned ? CORDONED : 0) |
  (taints.some((it) => !(isCordoned && it.startsWith('node.kubernetes.io/unschedulable'))) ? TAINTED : 0);

export const STEPS = 10; // Colours from empty to full.
export const OVER = STEPS; // Requests exceed the allocatable amount.
export const NONE = STEPS + 1; // The node does not have the resource.

/** Colours of the levels and marks, which follow the theme. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const anchors = ['--low', '--middle', '--high'].map(read).map(rgb);
  const levels = Array.from({ length: STEPS }, (_, step) => {
    const at = (step / (STEPS - 1)) * 2;
    const [from, to] = at < 1 ? [anchors[0], anchors[1]] : [anchors[1], anchors[2]];
    const share = at < 1 ? at : at - 1;
    return `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * share)).join(' ')})`;
  });
  return {
    levels: [...levels, read('--over'), read('--surface')],
    track: read('--track'),
    ink: read('--ink'),
    soft: read('--soft'),
    line: read('--line'),
    stranded: read('--stranded'),
    focus: read('--focus'),
    paper: read('--paper'),
  };
}

/** The level of a share; the last step begins at 90 %. */
export function levelOf(share) {
  if (Number.isNaN(share)) return NONE;
  return share > 1 + 1e-9 ? OVER : Math.min(STEPS - 1, Math.floor(share * STEPS));
}

/** A node without the resource is a dot, which no level looks like. */
export function dot(context, left, top, side) {
  const size = Math.max(1, Math.round(side / 4));
  context.fillRect(left + ((side - size) >> 1), top + ((side - size) >> 1), size, size);
}

/**
 * Draws the marks of tiles, each `[flags, left, top]`, in device pixels.
 *
 * Rings and corners are rectangles: a path of thousands of them costs tens of milliseconds without a GPU. A light edge
 * keeps the dark marks visible on dark tiles.
 */
export function marks(context, colors, ratio, side, tiles) {
  const line = Math.round((side >= 12 * ratio ? 2 : 1) * ratio);
  const having = (flag) => tiles.filter(([flags]) => flags & flag);
  context.fillStyle = colors.stranded;
  for (const [, left, top] of having(STRANDED)) {
    context.fillRect(left, top, side, line);
    context.fillRect(left, top + side - line, side, line);
    context.fillRect(left, top + line, line, side - 2 * line);
    context.fillRect(left + side - line, top + line, line, side - 2 * line);
  }
  const leg = Math.round(Math.max(2 * ratio, Math.min(side * 0.28, 8 * ratio)));
  const edge = Math.round(ratio);
  for (const [color, size] of [
    [colors.paper, leg + edge],
    [colors.ink, leg],
  ]) {
    context.fillStyle = color;
    for (const [, left, top] of side < 9 * ratio ? [] : having(TAINTED))
      context.fillRect(left + side - size, top, size, size);
  }
  for (const [color, width] of [
    [colors.paper, 2.5 * line],
    [colors.ink, 1.2 * line],
  ]) {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.beginPath();
    for (const [, left, top] of having(CORDONED)) {
      context.moveTo(left, top + side);
      context.lineTo(left + side, top);
    }
    context.stroke();
  }
  for (const flag of [ADDED, FULLER, EMPTIER, REMOVED])
    sign(context, colors, ratio, side, flag, having(flag));
}

/** A sign in the middle of tiles: a plus or minus, or a triangle that points up or down. */
function sign(context, colors, ratio, side, flag, tiles) {
  const size = Math.max(3 * ratio, Math.min(side * 0.5, 16 * ratio)) / 2;
  const [arm, edge] = [size * 0.36, Math.max(1, size * 0.3)];
  for (const [color, more] of [
    [colors.paper, edge],
    [colors.ink, 0],
  ]) {
    context.fillStyle = color;
    context.beginPath();
    for (const [, left, top] of tiles) {
      const [x, y, reach] = [left + side / 2, top + side / 2, size + more];
      if (flag === ADDED || flag === REMOVED) {
        context.rect(x - reach, y - arm - more, 2 * reach, 2 * (arm + more));
        if (flag === ADDED) context.rect(x - arm - more, y - reach, 2 * (arm + more), 2 * reach);
      } else {
        const tip = flag === FULLER ? -1 : 1;
        context.moveTo(x, y + tip * reach);
        context.lineTo(x + reach, y - tip * reach);
        context.lineTo(x - reach, y - tip * reach);
        context.closePath();
      }
    }
    context.fill();
  }
}

/** Draws a legend's swatch: `levels`, `over`, `none`, or a tile with flags. */
export function swatch(canvas, what) {
  const ratio = devicePixelRatio || 1;
  const colors = palette();
  const [width, height] = [what === 'levels' ? 120 : 16, 16];
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  const side = height * ratio;
  if (what === 'levels') {
    const step = (width * ratio) / STEPS;
    for (let level = 0; level < STEPS; level++) {
      context.fillStyle = colors.levels[level];
      context.fillRect(level * step, 0, step, side);
    }
    return;
  }
  if (what === 'none') {
    context.fillStyle = colors.soft;
    dot(context, 0, 0, side);
    return;
  }
  context.fillStyle = what === 'over' ? colors.levels[OVER] : colors.levels[3];
  context.fillRect(0, 0, side, side);
  if (what === 'over') return;
  marks(context, colors, ratio, side, [[what, 0, 0]]);
}

function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
