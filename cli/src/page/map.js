// The fleet on one canvas: drawing, zoom and pan, hover, selection and the keyboard's cursor.
//
// There is no element per node. A frame draws the tiles in view, one fill style after the other, because changes of the
// style cost more than rectangles. The outlines of the pointer and the selection are drawn over a copy of the tiles.

import { brief, percent, visible, whole } from './dom.js';
import { listen } from './input.js';
import { group, layout } from './layout.js';
import { dot, levelOf, marks, NONE, palette } from './tiles.js';

const DETAILED = 60; // The side of a tile that shows a name and all resources.

const isEqual = (camera, other) => ['scale', 'x', 'y'].every((key) => camera[key] === other[key]);

export class FleetMap {
  #canvas;
  #context;
  #on;
  #nodes = [];
  #domain = ''; // The end of all names, which tiles leave out.
  #resources = [];
  #zones = [];
  #plan = null;
  #camera = { scale: 1, x: 0, y: 0 };
  #shared = {}; // The camera that the other map has.
  #size = { width: 0, height: 0, ratio: 1 };
  #colors = palette();
  #flags = new Uint8Array();
  #by = 0; // The resource that fills the tiles.
  #shares = new Float32Array();
  #byLevel = [];
  #matches = null;
  #selected = new Set();
  #opened = -1;
  #hover = -1;
  #cursor = -1;
  #lasso = null; // A path in device pixels.
  #frame = 0;
  #base = document.createElement('canvas'); // The tiles without outlines.
  #isDirty = true;
  #rest = 0;
  #isHome = true; // Whether the whole fleet is shown.
  #isResized = false; // Whether the window was resized since the last layout.
  #shift = { x: 0, y: 0 }; // What the camera moved since the tiles were drawn, in device pixels.

  /**
   * `on` has `hover(node, point, isKeyboard)`, `open(node)` and `select(nodes, isToggle)`, each with indexes of nodes, and
   * `isSelecting()`: whether a drag selects. `moved(camera)` is optional, and called with a camera that another map does
   * not have yet.
   */
  constructor(canvas, on) {
    this.#canvas = canvas;
    this.#context = canvas.getContext('2d', { alpha: false });
    this.#on = on;
    addEventListener('resize', () => {
      this.#isResized = true;
    });
    new ResizeObserver(() => this.#resize()).observe(canvas);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.#colors = palette();
      this.draw();
    });
    this.#listen();
  }

  /** Shows the nodes. The camera stays if their names, zones and pools do not change. */
  set(nodes, resources, flags) {
    const isInPlace = (it, at) =>
      ['name', 'zone', 'pool'].every((field) => it[field] === this.#nodes[at][field]);
    const isSame = nodes.length === this.#nodes.length && nodes.every(isInPlace);
    [this.#nodes, this.#resources, this.#flags] = [nodes, resources, flags];
    if (!isSame || !this.#plan) {
      const [{ name } = { name: '' }] = nodes;
      const ends = [...name.matchAll(/\.(?=[a-z])/gi)].map(({ index }) => name.slice(index));
      this.#domain = ends.find((end) => nodes.every((it) => it.name.endsWith(end))) ?? '';
      this.#zones = group(nodes);
      this.#cursor = -1;
      this.#hover = -1;
      this.#selected = new Set();
      this.fit();
    }
  }

  /** Colours the tiles by a resource. O(nodes). */
  by(resource) {
    this.#by = resource;
    this.#shares = Float32Array.from(this.#nodes, ({ requested, allocatable }) =>
      allocatable[resource] > 0 ? requested[resource] / allocatable[resource] : NaN,
    );
    this.#byLevel = Array.from({ length: NONE + 1 }, () => []);
    this.#shares.forEach((share, node) => this.#byLevel[levelOf(share)].push(node));
    this.draw();
  }

  /** Marks the nodes by new flags. */
  flag(flags) {
    this.#flags = flags;
    this.draw();
  }

  /** Dims the nodes that are not in the set; null shows all. */
  match(nodes) {
    this.#matches = nodes;
    this.draw();
  }

  select(nodes) {
    this.#selected = nodes;
    this.#outline();
  }

  opened(node) {
    this.#opened = node;
    this.#outline();
  }

  /** Outlines a node as if it were hovered; -1 is none. */
  point(node) {
    this.#hover = node;
    this.#outline();
  }

  /** Takes the camera of another map of the same size. */
  follow(camera) {
    this.#shared = { ...camera };
    if (isEqual(camera, this.#camera)) return;
    this.#camera = { ...camera };
    this.#isHome = camera.scale === this.#smallest();
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
    this.#home();
  }

  /** Shows the whole plan, smaller if the canvas has become narrower than it. */
  #home() {
    this.#isHome = true;
    this.#camera = { scale: this.#smallest(), x: 8, y: 8 };
    this.draw();
  }

  #smallest() {
    return Math.min(1, (this.#size.width - 16) / this.#plan.width);
  }

  /** Zooms by a factor around a point, or the middle. */
  zoom(factor, x = this.#size.width / 2, y = this.#size.height / 2) {
    if (!this.#plan) return;
    const camera = this.#camera;
    const scale = Math.min(
      Math.max(1, 160 / this.#plan.pitch),
      Math.max(this.#smallest(), camera.scale * factor),
    );
    this.#isHome = scale === this.#smallest();
    camera.x = x - ((x - camera.x) * scale) / camera.scale;
    camera.y = y - ((y - camera.y) * scale) / camera.scale;
    camera.scale = scale;
    this.#moved();
  }

  /** Moves the camera by whole device pixels, so that the drawn tiles can be moved, and only the edge drawn. */
  pan(x, y) {
    const { ratio } = this.#size;
    const from = { ...this.#camera };
    this.#isHome = false;
    this.#camera.x += Math.round(x * ratio) / ratio;
    this.#camera.y += Math.round(y * ratio) / ratio;
    this.#bound();
    const [right, down] = [(this.#camera.x - from.x) * ratio, (this.#camera.y - from.y) * ratio].map(
      Math.round,
    );
    this.#camera.x = from.x + right / ratio;
    this.#camera.y = from.y + down / ratio;
    this.#shift.x += right;
    this.#shift.y += down;
    this.#outline();
    // Marks that cross the edge of a drawn part leave seams; a full frame removes them when the map rests.
    clearTimeout(this.#rest);
    this.#rest = setTimeout(() => this.draw(), 150);
  }

  /** Draws in the next frame, once. */
  draw() {
    this.#isDirty = true;
    this.#outline();
  }

  /** Draws only the outlines anew: a pointer over the map must not cost a frame of all tiles. */
  #outline() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#paint();
    });
  }

  #moved() {
    this.#bound();
    this.draw();
  }

  /** The fleet always covers the view, or is inside it. */
  #bound() {
    const { scale } = this.#camera;
    const { width, height } = this.#size;
    const limit = (at, world, view) =>
      Math.min(Math.max(at, Math.min(8, view - world * scale - 8)), Math.max(8, view - world * scale - 8));
    this.#camera.x = limit(this.#camera.x, this.#plan.width, width);
    this.#camera.y = limit(this.#camera.y, this.#plan.height, height);
  }

  #resize() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const ratio = devicePixelRatio || 1;
    if (!width || (width === this.#size.width && height === this.#size.height && ratio === this.#size.ratio))
      return;
    this.#size = { width, height, ratio };
    this.#canvas.width = Math.round(width * ratio);
    this.#canvas.height = Math.round(height * ratio);
    this.#base.width = this.#canvas.width;
    this.#base.height = this.#canvas.height;
    // A panel beside the map must not move nodes to other places; another size of the window may.
    if (!this.#plan || this.#isResized) this.fit();
    else if (this.#isHome) this.#home();
    else this.#moved();
    this.#isResized = false;
  }

  /** The side of a tile on the screen without its gap, in whole device pixels. */
  #side() {
    const side = this.#plan.pitch * this.#camera.scale;
    const gap = side >= 24 ? 3 : side >= 9 ? 2 : side >= 4 ? 1 : 0.5;
    return Math.max(1, Math.round((side - gap) * this.#size.ratio));
  }

  #left(node) {
    return Math.round((this.#plan.x[node] * this.#camera.scale + this.#camera.x) * this.#size.ratio);
  }

  #top(node) {
    return Math.round((this.#plan.y[node] * this.#camera.scale + this.#camera.y) * this.#size.ratio);
  }

  /** Draws the tiles if they have changed, and the outlines over them. */
  #paint() {
    if (!this.#plan || !this.#byLevel.length) return;
    const context = this.#base.getContext('2d', { alpha: false });
    const { width, height } = this.#base;
    const { x, y } = this.#shift;
    if (this.#isDirty) {
      this.#tiles(context, 0, 0, width, height);
    } else if (x || y) {
      context.drawImage(this.#base, x, y);
      if (x) this.#tiles(context, x > 0 ? 0 : width + x, 0, x > 0 ? x : width, height);
      if (y) this.#tiles(context, 0, y > 0 ? 0 : height + y, width, y > 0 ? y : height);
    }
    this.#isDirty = false;
    this.#shift = { x: 0, y: 0 };
    this.#context.drawImage(this.#base, 0, 0);
    this.#headings(this.#context);
    this.#outlines();
    // A frame for an outline must not undo what the other map has done since the last one.
    if (isEqual(this.#camera, this.#shared)) return;
    this.#shared = { ...this.#camera };
    this.#on.moved?.(this.#camera);
  }

  /** Draws the tiles of a part of the canvas. */
  #tiles(context, fromX, fromY, toX, toY) {
    const colors = this.#colors;
    const { ratio } = this.#size;
    const side = this.#plan.pitch * this.#camera.scale;
    const inner = this.#side();
    context.save();
    context.beginPath();
    context.rect(fromX, fromY, toX - fromX, toY - fromY);
    context.clip();
    context.fillStyle = colors.paper;
    context.fillRect(fromX, fromY, toX - fromX, toY - fromY);
    const matches = this.#matches;
    for (const isDim of matches ? [true, false] : [false]) {
      context.globalAlpha = isDim ? 0.18 : 1;
      const flagged = [];
      this.#byLevel.forEach((nodes, level) => {
        const isPlain = side < 12 || level === NONE;
        if (isPlain) context.fillStyle = level === NONE ? colors.soft : colors.levels[level];
        for (const node of nodes) {
          if (matches && matches.has(node) === isDim) continue;
          const left = this.#left(node);
          const top = this.#top(node);
          if (left >= toX || top >= toY || left + inner <= fromX || top + inner <= fromY) continue;
          if (this.#flags[node]) flagged.push(node);
          if (side >= DETAILED) {
            this.#details(context, node, left, top, inner);
          } else if (level === NONE) {
            dot(context, left, top, inner);
          } else if (isPlain) {
            context.fillRect(left, top, inner, inner);
          } else {
            const fill = Math.round(inner * Math.min(1, this.#shares[node]));
            context.fillStyle = colors.track;
            context.fillRect(left, top, inner, inner - fill);
            context.fillStyle = colors.levels[level];
            context.fillRect(left, top + inner - fill, inner, fill);
          }
        }
      });
      context.globalAlpha = isDim ? 0.3 : 1;
      if (side >= 5)
        marks(
          context,
          colors,
          ratio,
          inner,
          flagged.map((node) => [this.#flags[node], this.#left(node), this.#top(node)]),
        );
    }
    context.restore();
  }

  #outlines() {
    const context = this.#context;
    const { ratio } = this.#size;
    const colors = this.#colors;
    const side = this.#plan.pitch * this.#camera.scale;
    const inner = this.#side();
    const outline = (node, color, line) => {
      if (node < 0) return;
      context.strokeStyle = color;
      context.lineWidth = line * ratio;
      context.strokeRect(
        this.#left(node) - ratio / 2,
        this.#top(node) - ratio / 2,
        inner + ratio,
        inner + ratio,
      );
    };
    for (const node of this.#selected) outline(node, colors.focus, side >= 8 ? 2 : 1);
    outline(this.#opened, colors.paper, 5);
    outline(this.#opened, colors.ink, 2.5);
    outline(this.#hover, colors.ink, 1);
    if (document.activeElement === this.#canvas) outline(this.#cursor, colors.focus, 3);
    if (this.#lasso) {
      context.strokeStyle = colors.focus;
      context.fillStyle = colors.focus;
      context.globalAlpha = 0.12;
      context.fill(this.#lasso);
      context.globalAlpha = 1;
      context.lineWidth = 1.5 * ratio;
      context.setLineDash([5 * ratio, 3 * ratio]);
      context.stroke(this.#lasso);
      context.setLineDash([]);
    }
  }

  /** A large tile: the name, and a bar for each resource of the node. */
  #details(context, node, left, top, side) {
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
    context.fillText(
      this.#end(
        context,
        visible(name.slice(0, name.length - this.#domain.length)),
        side - 2 * pad - 6 * ratio,
      ),
      left + pad,
      top + 11 * ratio,
    );
    // The resource of the map is first and larger, at the same place in all tiles.
    const others = this.#resources.map((it, at) => at).filter((at) => at !== this.#by && allocatable[at] > 0);
    const shown = [this.#by, ...others];
    const row = (side - 22 * ratio) / (shown.length + 0.6);
    const isLabeled = row >= 18 * ratio;
    const [start, length] = [left + pad, side - 2 * pad];
    let y = top + 20 * ratio;
    for (const at of shown) {
      const isMain = at === this.#by;
      const share = requested[at] / allocatable[at];
      const height = isMain ? 1.6 * row : row;
      if (!(allocatable[at] > 0)) {
        context.fillStyle = colors.soft;
        dot(context, start, Math.round(y), Math.round(height));
        y += height;
        continue;
      }
      const text = isLabeled ? 12 * ratio : 0;
      if (isLabeled) {
        context.font = `${isMain ? '600 ' : ''}${10 * ratio}px system-ui, sans-serif`;
        context.fillStyle = isMain ? colors.ink : colors.soft;
        const label = `${percent(share)} ${visible(brief(this.#resources[at].name))}`;
        context.fillText(this.#cut(context, label, length), start, y + text / 2);
      }
      const thick = Math.max(2, height - text - 3 * ratio);
      context.fillStyle = colors.track;
      context.fillRect(start, y + text, length, thick);
      context.fillStyle = colors.levels[levelOf(share)];
      context.fillRect(start, y + text, length * Math.min(1, share), thick);
      y += height;
    }
  }

  #headings(context) {
    const { ratio } = this.#size;
    const { scale, x, y } = this.#camera;
    context.textBaseline = 'alphabetic';
    const text = (value, left, bottom, width) => {
      // A heading stays in view while its block is.
      const at = Math.max(left * scale + x, 8);
      const room = (left + width) * scale + x - at;
      // The text ends just above what it names.
      if (room > 20)
        context.fillText(
          this.#end(context, value, room * ratio),
          at * ratio,
          (bottom * scale + y - 4) * ratio,
        );
    };
    context.font = `600 ${12 * ratio}px system-ui, sans-serif`;
    context.fillStyle = this.#colors.ink;
    for (const it of this.#plan.headings) text(visible(it.text), it.x, it.y + 23, it.width);
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.fillStyle = this.#colors.soft;
    // The mark from left to right keeps the count behind the name of a pool from right to left.
    for (const it of this.#plan.blocks)
      text(`${visible(it.pool ?? 'no pool')}\u200e · ${whole(it.nodes.length)}`, it.x, it.y, Math.max(it.width, 92));
  }

  /** The text, cut to a width on the canvas. */
  #cut(context, text, width) {
    if (context.measureText(text).width <= width) return text;
    let length = Math.floor((text.length * width) / context.measureText(text).width);
    while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length--;
    return length > 1 ? `${text.slice(0, length)}…` : '';
  }

  /** The end of a name: the names of a pool differ there. */
  #end(context, text, width) {
    let from = 0;
    const cut = () => (from ? `…${text.slice(from)}` : text);
    while (from < text.length && context.measureText(cut()).width > width) from++;
    return cut();
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

  /** The nodes whose middle is in a path. O(nodes × points). */
  #within(path) {
    const half = this.#side() / 2;
    const isIn = (node) => this.#context.isPointInPath(path, this.#left(node) + half, this.#top(node) + half);
    return [...this.#nodes.keys()].filter(isIn);
  }

  /** A closed path through points of the canvas. */
  #path(points) {
    const { ratio } = this.#size;
    const path = new Path2D();
    for (const { x, y } of points) path.lineTo(x * ratio, y * ratio);
    path.closePath();
    return path;
  }

  #listen() {
    const nodeAt = ({ x, y }) => this.#at(x, y);
    listen(this.#canvas, {
      hover: (point) => this.#hovers(point ? nodeAt(point) : -1, point),
      click: (point, isChoice) => {
        const node = nodeAt(point);
        if (node < 0) return;
        this.#cursor = node;
        if (isChoice) this.#on.select([node], true);
        else this.#on.open(node);
      },
      lasso: (points, isDone) => {
        const path = points && this.#path(points);
        this.#lasso = isDone ? null : path;
        if (path && isDone) this.#on.select(this.#within(path));
        this.#outline();
      },
      isSelecting: () => this.#on.isSelecting(),
      pan: (x, y) => this.pan(x, y),
      zoom: (factor, x, y) => this.zoom(factor, x, y),
      step: (x, y) => this.#goTo(this.#cursor < 0 ? 0 : this.#next(x, y)),
      enter: () => this.#cursor >= 0 && this.#on.open(this.#cursor),
      toggle: () => this.#cursor >= 0 && this.#on.select([this.#cursor], true),
      fit: () => this.fit(),
      focus: (isKeyboard) => {
        if (isKeyboard) this.#goTo(Math.max(0, this.#cursor, this.#opened));
        this.#outline();
      },
      blur: () => {
        this.#hovers(-1);
        this.#outline();
      },
    });
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
    this.#hovers(
      node,
      {
        x: this.#plan.x[node] * scale + this.#camera.x + side,
        y: this.#plan.y[node] * scale + this.#camera.y + side,
      },
      true,
    );
    this.#outline();
  }

  #hovers(node, at, isKeyboard = false) {
    if (node !== this.#hover) this.#outline();
    this.#hover = node;
    this.#canvas.classList.toggle('on-node', node >= 0);
    this.#on.hover(node, at, isKeyboard);
  }
}
