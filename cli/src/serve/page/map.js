// The fleet on one canvas: drawing, zoom and pan, hover, selection and the keyboard's cursor.
//
// There is no element per node. A frame draws the tiles in view, one fill style after the other, because changes of the
// style cost more than rectangles. At 10,000 nodes that is a few milliseconds.

import { brief, percent } from './dom.js';
import { group, layout } from './layout.js';

/** Flags of a node. */
export const CORDONED = 1;
export const TAINTED = 2;
export const STRANDED = 4;

const STEPS = 10; // Colours from empty to full.
const OVER = STEPS; // Requests exceed the allocatable amount.
const NONE = STEPS + 1; // The node does not have the resource.
const DETAILED = 60; // The side of a tile that shows a name and all resources.

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
    track: read('--track'), ink: read('--ink'), soft: read('--soft'), line: read('--line'),
    stranded: read('--stranded'), focus: read('--focus'), paper: read('--paper'),
  };
}

/** The level of a share; the last step begins at 90 %. */
function levelOf(share) {
  if (Number.isNaN(share)) return NONE;
  return share > 1 + 1e-9 ? OVER : Math.min(STEPS - 1, Math.floor(share * STEPS));
}

export class FleetMap {
  #canvas;
  #context;
  #on;
  #nodes = [];
  #resources = [];
  #zones = [];
  #plan = null;
  #camera = { scale: 1, x: 0, y: 0 };
  #size = { width: 0, height: 0, ratio: 1 };
  #colors = palette();
  #flags = new Uint8Array();
  #shares = new Float32Array();
  #byLevel = [];
  #matches = null;
  #selected = new Set();
  #opened = -1;
  #hover = -1;
  #cursor = -1;
  #box = null;
  #frame = 0;

  /** `on` has `hover(node, x, y)`, `open(node)`, `select(nodes)`, each with indexes of nodes. */
  constructor(canvas, on) {
    this.#canvas = canvas;
    this.#context = canvas.getContext('2d', { alpha: false });
    this.#on = on;
    new ResizeObserver(() => this.#resize()).observe(canvas);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.#colors = palette();
      this.draw();
    });
    this.#listen();
  }

  /** Shows the nodes. The camera stays if their number and groups do not change. */
  set(nodes, resources, flags) {
    const isSame = nodes.length === this.#nodes.length && nodes.every((it, at) => it.name === this.#nodes[at].name);
    [this.#nodes, this.#resources, this.#flags] = [nodes, resources, flags];
    if (!isSame || !this.#plan) {
      this.#zones = group(nodes);
      this.#cursor = -1;
      this.#hover = -1;
      this.#selected = new Set();
      this.fit();
    }
  }

  /** Colours the tiles by a resource. O(nodes). */
  by(resource) {
    this.#shares = Float32Array.from(this.#nodes, ({ requested, allocatable }) => allocatable[resource] > 0 ? requested[resource] / allocatable[resource] : NaN);
    this.#byLevel = Array.from({ length: NONE + 1 }, () => []);
    this.#shares.forEach((share, node) => this.#byLevel[levelOf(share)].push(node));
    this.draw();
  }

  /** Dims the nodes that are not in the set; null shows all. */
  match(nodes) {
    this.#matches = nodes;
    this.draw();
  }

  select(nodes) {
    this.#selected = nodes;
    this.draw();
  }

  opened(node) {
    this.#opened = node;
    this.draw();
  }

  /** Moves a node into the middle if it is out of view. */
  reveal(node) {
    if (!this.#plan) return;
    const { scale, x, y } = this.#camera;
    const [left, top] = [this.#plan.x[node] * scale + x, this.#plan.y[node] * scale + y];
    const { width, height } = this.#size;
    const side = this.#plan.pitch * scale;
    if (left < 0 || top < 0 || left + side > width || top + side > height) {
      this.#camera.x += width / 2 - left;
      this.#camera.y += height / 2 - top;
      this.#moved();
    }
  }

  /** Shows the whole fleet. */
  fit() {
    if (!this.#size.width) return;
    const { width, height } = this.#size;
    this.#plan = layout(this.#zones, this.#nodes.length, width - 16, height - 16);
    this.#camera = { scale: 1, x: 8, y: 8 };
    this.draw();
  }

  /** Zooms by a factor around a point, or the middle. */
  zoom(factor, x = this.#size.width / 2, y = this.#size.height / 2) {
    if (!this.#plan) return;
    const camera = this.#camera;
    const scale = Math.min(Math.max(1, 160 / this.#plan.pitch), Math.max(1, camera.scale * factor));
    camera.x = x - ((x - camera.x) * scale) / camera.scale;
    camera.y = y - ((y - camera.y) * scale) / camera.scale;
    camera.scale = scale;
    this.#moved();
  }

  pan(x, y) {
    this.#camera.x += x;
    this.#camera.y += y;
    this.#moved();
  }

  /** Draws in the next frame, once. */
  draw() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#paint();
    });
  }

  /** A part of the fleet always stays in view. */
  #moved() {
    const { scale } = this.#camera;
    const { width, height } = this.#size;
    const limit = (at, world, view) => Math.min(Math.max(at, Math.min(8, view - world * scale - 8)), Math.max(8, view - world * scale - 8));
    this.#camera.x = limit(this.#camera.x, this.#plan.width, width);
    this.#camera.y = limit(this.#camera.y, this.#plan.height, height);
    this.draw();
  }

  #resize() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const ratio = devicePixelRatio || 1;
    if (!width || (width === this.#size.width && height === this.#size.height && ratio === this.#size.ratio)) return;
    this.#size = { width, height, ratio };
    this.#canvas.width = Math.round(width * ratio);
    this.#canvas.height = Math.round(height * ratio);
    this.fit();
  }

  /** The tile of a node on the canvas, in whole device pixels: [left, top, width, height]. */
  #tile(node) {
    const { pitch, x, y } = this.#plan;
    const { scale } = this.#camera;
    const { ratio } = this.#size;
    const side = pitch * scale;
    const gap = side >= 24 ? 3 : side >= 9 ? 2 : side >= 4 ? 1 : 0.5;
    const left = Math.round((x[node] * scale + this.#camera.x) * ratio);
    const top = Math.round((y[node] * scale + this.#camera.y) * ratio);
    const inner = Math.max(1, Math.round((side - gap) * ratio));
    return [left, top, inner, inner];
  }

  #paint() {
    if (!this.#plan || !this.#byLevel.length) return;
    const context = this.#context;
    const { width, height } = this.#canvas;
    const { ratio } = this.#size;
    const colors = this.#colors;
    const side = this.#plan.pitch * this.#camera.scale;
    const isVisible = ([left, top, w]) => left < width && top < height && left + w > 0 && top + w > 0;
    context.fillStyle = colors.paper;
    context.fillRect(0, 0, width, height);

    const dimmed = this.#matches && ((node) => !this.#matches.has(node));
    for (const isDim of dimmed ? [true, false] : [false]) {
      context.globalAlpha = isDim ? 0.18 : 1;
      this.#byLevel.forEach((nodes, level) => {
        for (const node of nodes) {
          if (dimmed && dimmed(node) !== isDim) continue;
          const [left, top, w, h] = this.#tile(node);
          if (left >= width || top >= height || left + w <= 0 || top + h <= 0) continue;
          if (side >= DETAILED) {
            this.#details(node, left, top, w);
          } else if (side >= 12 && level !== NONE) {
            const fill = Math.round(h * Math.min(1, this.#shares[node]));
            context.fillStyle = colors.track;
            context.fillRect(left, top, w, h - fill);
            context.fillStyle = colors.levels[level];
            context.fillRect(left, top + h - fill, w, fill);
          } else {
            context.fillStyle = level === NONE ? colors.track : colors.levels[level];
            context.fillRect(left, top, w, h);
          }
        }
      });
      context.globalAlpha = isDim ? 0.3 : 1;
      this.#marks(side, (node) => (!dimmed || dimmed(node) === isDim) && isVisible(this.#tile(node)));
    }
    context.globalAlpha = 1;
    this.#headings();
    const outline = (node, color, line) => {
      if (node < 0) return;
      const [left, top, w, h] = this.#tile(node);
      context.strokeStyle = color;
      context.lineWidth = line * ratio;
      context.strokeRect(left - ratio / 2, top - ratio / 2, w + ratio, h + ratio);
    };
    for (const node of this.#selected) outline(node, colors.focus, side >= 8 ? 2 : 1);
    outline(this.#opened, colors.ink, 2);
    outline(this.#hover, colors.ink, 1);
    if (document.activeElement === this.#canvas) outline(this.#cursor, colors.focus, 3);
    if (this.#box) {
      const { x, y, toX, toY } = this.#box;
      context.strokeStyle = colors.focus;
      context.lineWidth = 1.5 * ratio;
      context.setLineDash([5 * ratio, 3 * ratio]);
      context.strokeRect(x * ratio, y * ratio, (toX - x) * ratio, (toY - y) * ratio);
      context.setLineDash([]);
    }
  }

  /** Marks of cordoned, tainted and stranded nodes, one path for each kind. */
  #marks(side, isShown) {
    if (side < 5) return;
    const context = this.#context;
    const { ratio } = this.#size;
    const all = { [CORDONED]: new Path2D(), [TAINTED]: new Path2D(), [STRANDED]: new Path2D() };
    this.#flags.forEach((flags, node) => {
      if (!flags || !isShown(node)) return;
      mark(all, flags, ...this.#tile(node), ratio);
    });
    paintMarks(context, all, this.#colors, ratio, side);
  }

  /** A large tile: the name, and a bar for each resource of the node. */
  #details(node, left, top, side) {
    const context = this.#context;
    const { ratio } = this.#size;
    const { name, allocatable, requested } = this.#nodes[node];
    const colors = this.#colors;
    const pad = 5 * ratio;
    context.fillStyle = colors.levels[NONE];
    context.fillRect(left, top, side, side);
    context.strokeStyle = colors.line;
    context.lineWidth = ratio;
    context.strokeRect(left + ratio / 2, top + ratio / 2, side - ratio, side - ratio);
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.textBaseline = 'middle';
    context.fillStyle = colors.ink;
    context.fillText(this.#cut(name, side - 2 * pad - 6 * ratio), left + pad, top + 11 * ratio);
    const shown = this.#resources.map((it, at) => at).filter((at) => allocatable[at] > 0);
    const row = Math.min((side - 22 * ratio) / shown.length, 18 * ratio);
    const isLabeled = side >= 100 * ratio && row >= 13 * ratio;
    const from = isLabeled ? 0.52 : 0;
    shown.forEach((at, line) => {
      const y = top + 20 * ratio + line * row;
      const share = requested[at] / allocatable[at];
      const length = (side - 2 * pad) * (1 - from);
      const start = left + pad + (side - 2 * pad) * from;
      const thick = Math.max(2, Math.min(row - 3 * ratio, 8 * ratio));
      if (isLabeled) {
        context.font = `${10 * ratio}px system-ui, sans-serif`;
        context.fillStyle = colors.soft;
        context.fillText(this.#cut(`${percent(share)} ${brief(this.#resources[at].name)}`, start - left - pad - 3 * ratio), left + pad, y + thick / 2);
      }
      context.fillStyle = colors.track;
      context.fillRect(start, y, length, thick);
      context.fillStyle = colors.levels[levelOf(share)];
      context.fillRect(start, y, length * Math.min(1, share), thick);
    });
  }

  #headings() {
    const context = this.#context;
    const { ratio } = this.#size;
    const { scale, x, y } = this.#camera;
    context.textBaseline = 'alphabetic';
    const text = (value, left, bottom, width) => {
      // A heading stays in view while its block is.
      const at = Math.max(left * scale + x, 8);
      const room = (left + width) * scale + x - at;
      if (room > 20) context.fillText(this.#cut(value, room * ratio), at * ratio, (bottom * scale + y) * ratio);
    };
    context.font = `600 ${12 * ratio}px system-ui, sans-serif`;
    context.fillStyle = this.#colors.ink;
    for (const it of this.#plan.headings) text(it.text, it.x, it.y + 13, it.width);
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.fillStyle = this.#colors.soft;
    for (const it of this.#plan.blocks) text(`${it.pool ?? 'no pool'} · ${it.nodes.length}`, it.x, it.y - 4, Math.max(it.width, 92));
  }

  /** The text, cut to a width on the canvas. */
  #cut(text, width) {
    const context = this.#context;
    if (context.measureText(text).width <= width) return text;
    let length = Math.floor((text.length * width) / context.measureText(text).width);
    while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length--;
    return length > 1 ? `${text.slice(0, length)}…` : '';
  }

  /** The node at a point of the canvas, or -1. O(pools). */
  #at(x, y) {
    if (!this.#plan) return -1;
    const { scale } = this.#camera;
    const [worldX, worldY] = [(x - this.#camera.x) / scale, (y - this.#camera.y) / scale];
    const { pitch } = this.#plan;
    for (const block of this.#plan.blocks) {
      const [column, row] = [Math.floor((worldX - block.x) / pitch), Math.floor((worldY - block.y) / pitch)];
      if (column < 0 || row < 0 || column >= block.columns) continue;
      const node = block.nodes[row * block.columns + column];
      if (node !== undefined) return node;
    }
    return -1;
  }

  /** The nodes whose middle is in a rectangle of the canvas. */
  #within({ x, y, toX, toY }) {
    const { scale } = this.#camera;
    const half = (this.#plan.pitch * scale) / 2;
    const found = [];
    this.#nodes.forEach((_, node) => {
      const [left, top] = [this.#plan.x[node] * scale + this.#camera.x + half, this.#plan.y[node] * scale + this.#camera.y + half];
      if (left >= Math.min(x, toX) && left <= Math.max(x, toX) && top >= Math.min(y, toY) && top <= Math.max(y, toY)) found.push(node);
    });
    return found;
  }

  #listen() {
    const canvas = this.#canvas;
    const pointers = new Map();
    let travelled = 0;
    const point = (event) => {
      const { left, top } = canvas.getBoundingClientRect();
      return { x: event.clientX - left, y: event.clientY - top };
    };
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      const { x, y } = point(event);
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), x, y);
    }, { passive: false });
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      const at = point(event);
      pointers.set(event.pointerId, at);
      travelled = 0;
      if (event.shiftKey && pointers.size === 1) this.#box = { ...at, toX: at.x, toY: at.y };
    });
    canvas.addEventListener('pointermove', (event) => {
      const at = point(event);
      const before = pointers.get(event.pointerId);
      if (!before) return this.#hovers(this.#at(at.x, at.y), at);
      travelled += Math.abs(at.x - before.x) + Math.abs(at.y - before.y);
      if (this.#box) {
        [this.#box.toX, this.#box.toY] = [at.x, at.y];
        this.draw();
      } else if (pointers.size === 2) {
        const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
        const distance = (it) => Math.hypot(it.x - other.x, it.y - other.y);
        this.zoom(distance(at) / Math.max(1, distance(before)), (at.x + other.x) / 2, (at.y + other.y) / 2);
      } else {
        this.pan(at.x - before.x, at.y - before.y);
      }
      pointers.set(event.pointerId, at);
      return undefined;
    });
    const end = (event) => {
      if (!pointers.delete(event.pointerId)) return;
      const box = this.#box;
      this.#box = null;
      const at = point(event);
      const node = this.#at(at.x, at.y);
      if (event.type === 'pointercancel') this.draw();
      else if (box && travelled > 6) this.#on.select(this.#within(box));
      else if (box && node >= 0) this.#on.select([node], true);
      else if (travelled <= 6 && node >= 0) this.#on.open(node);
      this.draw();
    };
    canvas.addEventListener('pointerup', end);
    canvas.addEventListener('pointercancel', end);
    canvas.addEventListener('pointerleave', () => this.#hovers(-1));
    canvas.addEventListener('focus', () => this.#cursor < 0 ? this.#goTo(Math.max(0, this.#opened)) : this.draw());
    canvas.addEventListener('blur', () => {
      this.#hovers(-1);
      this.draw();
    });
    canvas.addEventListener('keydown', (event) => this.#key(event));
  }

  #key(event) {
    if (!this.#nodes.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const { key } = event;
    if (moves[key]) this.#goTo(this.#next(...moves[key]));
    else if (key === 'Enter') this.#on.open(this.#cursor);
    else if (key === ' ') this.#on.select([this.#cursor], true);
    else if (key === '+' || key === '=') this.zoom(1.5);
    else if (key === '-') this.zoom(1 / 1.5);
    else if (key === '0') this.fit();
    else return;
    event.preventDefault();
  }

  /** The node next to the cursor in a direction; one to the side counts as farther. O(nodes). */
  #next(dx, dy) {
    const { x, y, pitch } = this.#plan;
    let [best, least] = [this.#cursor, Infinity];
    for (let node = 0; node < this.#nodes.length; node++) {
      const [right, down] = [x[node] - x[this.#cursor], y[node] - y[this.#cursor]];
      const ahead = right * dx + down * dy;
      const aside = Math.abs(right * dy + down * dx);
      if (ahead < pitch / 2) continue;
      const distance = ahead + 3 * aside;
      if (distance < least) [best, least] = [node, distance];
    }
    return best;
  }

  #goTo(node) {
    if (node < 0 || !this.#plan || node >= this.#nodes.length) return;
    this.#cursor = node;
    this.reveal(node);
    const { scale } = this.#camera;
    const side = this.#plan.pitch * scale;
    this.#hovers(node, { x: this.#plan.x[node] * scale + this.#camera.x + side, y: this.#plan.y[node] * scale + this.#camera.y + side }, true);
    this.draw();
  }

  #hovers(node, at, isKeyboard = false) {
    if (node !== this.#hover) this.draw();
    this.#hover = node;
    this.#canvas.classList.toggle('on-node', node >= 0);
    this.#on.hover(node, at, isKeyboard);
  }
}

/** Adds the marks of a tile to the paths. */
function mark(paths, flags, left, top, w, h, ratio) {
  if (flags & CORDONED) {
    paths[CORDONED].moveTo(left, top + h);
    paths[CORDONED].lineTo(left + w, top);
  }
  if (flags & TAINTED) {
    const leg = Math.max(3 * ratio, Math.min(w * 0.38, 9 * ratio));
    paths[TAINTED].moveTo(left + w - leg, top);
    paths[TAINTED].lineTo(left + w, top);
    paths[TAINTED].lineTo(left + w, top + leg);
    paths[TAINTED].closePath();
  }
  if (flags & STRANDED) paths[STRANDED].rect(left + ratio / 2, top + ratio / 2, w - ratio, h - ratio);
}

function paintMarks(context, paths, colors, ratio, side) {
  context.lineWidth = (side >= 12 ? 2 : 1) * ratio;
  context.strokeStyle = colors.stranded;
  context.stroke(paths[STRANDED]);
  context.fillStyle = colors.ink;
  context.fill(paths[TAINTED]);
  // A light line below the dark one keeps the stroke visible on every level.
  context.strokeStyle = colors.paper;
  context.lineWidth = (side >= 12 ? 3.5 : 2) * ratio;
  context.stroke(paths[CORDONED]);
  context.strokeStyle = colors.ink;
  context.lineWidth = (side >= 12 ? 1.5 : 1) * ratio;
  context.stroke(paths[CORDONED]);
}

/** Draws a legend's swatch: all levels from empty to full, or a tile with flags, or the level above full. */
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
  context.fillStyle = what === 'over' ? colors.levels[OVER] : colors.levels[3];
  context.fillRect(0, 0, side, side);
  if (what === 'over') return;
  const paths = { [CORDONED]: new Path2D(), [TAINTED]: new Path2D(), [STRANDED]: new Path2D() };
  mark(paths, what, 0, 0, side, side, ratio);
  paintMarks(context, paths, colors, ratio, height);
}

function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
