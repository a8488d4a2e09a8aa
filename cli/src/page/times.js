// The time that is shown: a slider over the readings that the server holds.
//
// The last place of the slider is "now", which follows the cluster. The address has the generation of every other place,
// and the reading that it is compared with.

import { get } from './api.js';
import { count, el, fill, whole } from './dom.js';
import { moment } from './moment.js';
import { generation, note, route, session } from './route.js';

const PAUSE = 120; // Milliseconds without a move of the slider until its place is shown.
const HOLD = 60 * 60 * 1000; // Milliseconds that the server holds a reading of a cluster.
const MOST = 3_600; // The readings that it holds.

/** The readings that may be compared with the one that is shown, by their value in the address. */
const COMPARED = { '': 'nothing', now: 'now', before: 'the reading before', first: 'the oldest' };

/** Fills `box` with the slider. `shown` is called when another time is chosen. */
export class Times {
  #box;
  #shown;
  #all = []; // The readings, the oldest first.
  #loading = null;
  #ready; // Ends when the list was first read.
  #timer = 0;
  #slider;
  #label;
  #now;
  #compared;

  constructor(box, shown) {
    this.#box = box;
    this.#shown = shown;
    this.#slider = el('input', {
      type: 'range',
      id: 'time',
      min: 0,
      step: 1,
      oninput: () => {
        clearTimeout(this.#timer);
        this.#describe();
        this.#timer = setTimeout(() => {
          this.#timer = 0;
          this.#choose(Number(this.#slider.value));
        }, PAUSE);
      },
    });
    this.#label = el('output', { for: 'time' });
    this.#now = el('button', { type: 'button', onclick: () => this.#choose(this.#all.length - 1) }, 'Now');
    this.#compared = el('select', {
      id: 'compare',
      onchange: () => {
        note({ with: this.#compared.value });
        this.#shown();
      },
    });
    this.#ready = this.load();
    fill(
      box,
      el('label', { for: 'time' }, 'Time'),
      this.#slider,
      this.#label,
      this.#now,
      el('span', { class: 'pair' }, el('label', { for: 'compare' }, 'Compare with'), this.#compared),
    );
  }

  /** Adds a reading of an event. The list is read again if it is not the next one. */
  async add(reading) {
    const last = this.#all.at(-1);
    if (reading.generation === last?.generation && reading.taken === last.taken) return;
    if (last && reading.generation === last.generation + 1) {
      this.#all.push(reading);
      const first = reading.replay ? -Infinity : Date.parse(reading.taken) - HOLD;
      while (this.#all.length > MOST || Date.parse(this.#all[1].taken) < first) this.#all.shift();
      this.show();
    } else {
      await this.load();
    }
  }

  /** Reads the list from the server, once at a time. */
  async load() {
    this.#loading ??= get('generations').finally(() => {
      this.#loading = null;
    });
    const found = await this.#loading.catch(() => null);
    if (!found) return;
    this.#all = found.generations;
    this.show();
  }

  /** Shows the place of the address. */
  show() {
    const { view, params } = route();
    const at = this.#at();
    // A session does not follow the time, and a single reading has no choice.
    this.#box.hidden = session() !== null || (this.#all.length < 2 && generation() === null);
    if (!this.#all.length) return;
    this.#slider.max = this.#all.length - 1;
    if (!this.#timer) this.#slider.value = at; // A person may be moving it.
    this.#compared.parentElement.hidden = view !== 'fleet';
    const options = Object.entries(COMPARED);
    const { with: other = '' } = params;
    if (!(other in COMPARED)) options.push([other, `generation ${other}`]);
    // A list that is filled again closes.
    if (this.#compared.options.length !== options.length || this.#compared.value !== other) {
      fill(
        this.#compared,
        options.map(([value, text]) => el('option', { value }, text)),
      );
      this.#compared.value = other;
    }
    this.#describe();
  }

  /** The reading that the shown one is compared with, and the shown one; null if there is none or both are one. */
  async compared() {
    await this.#ready;
    const { with: chosen } = route().params;
    if (session() || !chosen || !this.#all.length) return null;
    const [at, last] = [this.#at(), this.#all.length - 1];
    const place = { now: last, before: at - 1, first: 0 }[chosen];
    const other =
      place === undefined
        ? this.#all.find((it) => it.generation === Number(chosen))
        : this.#all[Math.max(0, place)];
    const shown = this.#all[at];
    return other && other !== shown ? { from: other, to: shown } : null;
  }

  /** The place of the shown reading. One that is no longer held has the place of the next one. */
  #at() {
    const last = this.#all.length - 1;
    if (generation() === null) return last;
    const at = this.#all.findIndex((it) => it.generation >= generation());
    return at < 0 ? last : at;
  }

  #choose(at) {
    const isNow = at >= this.#all.length - 1;
    note({ generation: isNow ? null : this.#all[at].generation });
    this.show();
    this.#shown();
  }

  #describe() {
    const at = Number(this.#slider.value);
    const { generation, nodes, pods, pending } = this.#all[at];
    const isNow = at === this.#all.length - 1;
    const text = `${isNow ? 'now, ' : ''}${time(this.#all[at])}, generation ${whole(generation)}`;
    this.#label.textContent = text;
    this.#slider.setAttribute(
      'aria-valuetext',
      `${text}: ${count(nodes, 'node')}, ${count(pods, 'pod')}, ${whole(pending)} pending`,
    );
    this.#now.disabled = isNow;
  }
}

/** The time of a reading, for people. */
export const time = ({ taken, replay }) =>
  replay ? moment(replay) : new Date(taken).toLocaleTimeString();
