// A map of the fleet with its buttons, and the tip of the node under the pointer.

import { amount, announce, brief, el, fill, percent } from './dom.js';
import { FleetMap } from './map.js';
import { swatch } from './tiles.js';

/** The largest selection that is kept in the address. */
export const LINKED = 60;

/** How a map is used, for the descriptions of maps. */
export const SELECTING =
  'Select: Shift and click, Shift and drag around nodes, or press Select and drag. ' +
  'Keyboard: arrows, Space, +, −, 0.';

/** The resources that a node has, with their requested shares. */
export const shares = ({ requested, allocatable }, resources) =>
  resources.flatMap((resource, at) =>
    allocatable[at] > 0
      ? [
          [
            brief(resource.name),
            `${percent(requested[at] / allocatable[at])} of ${amount(allocatable[at], resource)}`,
          ],
        ]
      : [],
  );

/** An entry of a legend: a swatch and its meaning. */
export function entry(what, text) {
  const picture = el('canvas', { 'aria-hidden': 'true' });
  swatch(picture, what);
  return el('li', null, picture, text);
}

export class Stage {
  #describe;
  #tip = el('div', { class: 'tip', hidden: true });
  #select;

  /**
   * `describe(node)` returns `{ name, words, pairs, more }` of a node: the tip shows all but the words, and a screen
   * reader reads all. `open(node)` and `select(nodes, isToggle)` are called for what a person does; without `select`,
   * nothing is selected. `hovered(node)` and `moved(camera)` tell another map. `keys` is the id of the text that
   * describes the use.
   */
  constructor(keys, { describe, open, select, hovered, moved }) {
    this.#describe = describe;
    this.canvas = el('canvas', { tabindex: 0, role: 'application', 'aria-describedby': keys });
    this.#select =
      (select || null) &&
      el(
        'button',
        {
          type: 'button',
          'aria-pressed': 'false',
          'aria-describedby': keys,
          onclick: () => this.choose(!this.#isSelecting()),
        },
        'Select',
      );
    this.map = new FleetMap(this.canvas, {
      hover: (node, at, isKeyboard) => {
        this.#hover(node, at, isKeyboard);
        hovered?.(node);
      },
      moved,
      open,
      select: select || (() => {}),
      isSelecting: () => this.#isSelecting(),
    });
    const button = (label, text, action) =>
      el(
        'button',
        { type: 'button', class: 'square', 'aria-label': label, title: label, onclick: action },
        text,
      );
    this.element = el(
      'div',
      { class: 'stage' },
      this.canvas,
      this.#tip,
      el(
        'div',
        { class: 'zoom' },
        button('Zoom in', '+', () => this.map.zoom(1.6)),
        button('Zoom out', '−', () => this.map.zoom(1 / 1.6)),
        button('Show all nodes', '⤢', () => this.map.fit()),
      ),
      this.#select && el('div', { class: 'choose' }, this.#select),
    );
  }

  #isSelecting() {
    return this.#select?.getAttribute('aria-pressed') === 'true';
  }

  /** Whether a drag selects, and does not pan. */
  choose(isSelecting) {
    this.#select.setAttribute('aria-pressed', isSelecting);
    this.canvas.classList.toggle('choosing', isSelecting);
  }

  #hover(node, at, isKeyboard) {
    this.#tip.hidden = node < 0;
    if (node < 0) return;
    const { name, pairs, more, words } = this.#describe(node);
    fill(
      this.#tip,
      el('b', null, name),
      el('dl', null, pairs.map(([key, value]) => [el('dt', null, key), el('dd', null, value)]).flat()),
      more.length > 0 && el('p', null, more.join(', ')),
    );
    const { clientWidth: width, clientHeight: height } = this.element;
    this.#tip.style.left = `${Math.max(0, Math.min(at.x + 14, width - this.#tip.offsetWidth - 4))}px`;
    const below = at.y + 14;
    const isBelow = below + this.#tip.offsetHeight <= height;
    this.#tip.style.top = `${isBelow ? below : Math.max(0, at.y - this.#tip.offsetHeight - 10)}px`;
    if (isKeyboard) {
      const values = pairs.map((pair) => pair.join(' '));
      announce([name, ...words, ...values, ...more].filter(Boolean).join(', '));
    }
  }
}
