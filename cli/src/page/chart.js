// Lines over the axis of a replay. Each value holds until the next one.
//
// Lines differ in their dashes, which all people see. The pointer or the arrow keys read the values of one moment.

import { announce, el, fill, svg, visible, whole } from './dom.js';
import { round } from './clock.js';

const HEIGHT = 230;
const INNER = { left: 54, right: 12, top: 8, bottom: 26 };

/** The most lines of a chart: more cannot be told apart. */
export const LINES = 6;

/**
 * Returns a chart. `axis` is a clock, and a line is `{ name, at, values }`. `format` is the text of a value, which is a
 * count unless `isCount` is false.
 */
export function chart({ title, axis, lines, format = whole, isCount = true }) {
  const most = (line) => line.values.reduce((a, b) => Math.max(a, b), 0);
  const peaks = lines.map((line) => `${visible(line.name)}, at most ${format(most(line))}`);
  const picture = svg('svg', {
    role: 'application',
    tabindex: 0,
    'aria-label': `${title}: ${peaks.join('; ')}. The arrow keys read values.`,
  });
  const tip = el('div', { class: 'tip', hidden: true });
  const stage = el('div', { class: 'stage-of-chart' }, picture, tip);
  const highest = Math.max(1, ...lines.map(most)) * 1.05;
  const moments = [...new Set(lines.flatMap((line) => line.at))].sort((a, b) => a - b);
  const length = axis.end || 1;
  let width = 0;
  let cursor = -1; // The place of the moment that is read.
  let rule;

  const x = (at) => INNER.left + (at / length) * (width - INNER.left - INNER.right);
  const y = (value) => HEIGHT - INNER.bottom - (value / highest) * (HEIGHT - INNER.top - INNER.bottom);

  function draw() {
    if (!stage.clientWidth || stage.clientWidth === width) return;
    width = stage.clientWidth;
    const bottom = HEIGHT - INNER.bottom;
    picture.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
    // Counts have no fractions.
    const across = round(highest, isCount ? Math.min(5, highest) : 5).map(([value]) => [
      svg('line', { class: 'grid', x1: INNER.left, x2: width - INNER.right, y1: y(value), y2: y(value) }),
      svg('text', { x: INNER.left - 6, y: y(value) + 4, 'text-anchor': 'end' }, format(value)),
    ]);
    const along = axis.ticks(Math.max(2, Math.floor(width / 120))).map(([at, text]) => {
      // The text of the last tick ends at the edge.
      const anchor = x(at) > width - 45 ? 'end' : x(at) < INNER.left + 30 ? 'start' : 'middle';
      return [
        svg('line', { class: 'tick', x1: x(at), x2: x(at), y1: bottom, y2: bottom + 4 }),
        svg('text', { x: x(at), y: HEIGHT - 6, 'text-anchor': anchor }, text),
      ];
    });
    rule = svg('line', { class: 'rule', y1: INNER.top, y2: bottom, visibility: 'hidden' });
    const paths = lines.map((line, at) => svg('path', { class: `line line-${at % LINES}`, d: path(line) }));
    picture.replaceChildren(...across.flat(), ...along.flat(), ...paths, rule);
  }

  function path({ at, values }) {
    const steps = at.map(
      (it, place) =>
        `${place ? 'H' : 'M'}${x(it).toFixed(1)}${place ? 'V' : ' '}${y(values[place]).toFixed(1)}`,
    );
    return `${steps.join('')}H${x(length).toFixed(1)}`;
  }

  /** Shows the values of a moment; -1 hides them. */
  function read(place) {
    cursor = Math.min(place, moments.length - 1);
    tip.hidden = cursor < 0;
    rule.setAttribute('visibility', cursor < 0 ? 'hidden' : 'visible');
    if (cursor < 0) return '';
    const at = moments[cursor];
    const values = lines.map((line) => [
      line.name,
      format(line.values[Math.max(0, lastUpTo(line.at, at))] ?? 0),
    ]);
    rule.setAttribute('x1', x(at));
    rule.setAttribute('x2', x(at));
    fill(
      tip,
      el('b', null, axis.text(at)),
      el(
        'dl',
        null,
        values.flatMap(([name, value]) => [el('dt', null, name), el('dd', null, value)]),
      ),
    );
    const left = x(at) + 12;
    tip.style.left = `${left + tip.offsetWidth > width ? Math.max(0, x(at) - 12 - tip.offsetWidth) : left}px`;
    tip.style.top = `${INNER.top}px`;
    return [axis.text(at), ...values.map((it) => it.join(' '))].join(', ');
  }

  picture.addEventListener('pointermove', (event) => {
    const at = ((event.offsetX - INNER.left) / (width - INNER.left - INNER.right)) * length;
    read(Math.max(0, lastUpTo(moments, at)));
  });
  picture.addEventListener('pointerleave', () => read(-1));
  picture.addEventListener('blur', () => read(-1));
  picture.addEventListener('keydown', (event) => {
    const to = {
      ArrowRight: () => cursor + 1,
      ArrowLeft: () => Math.max(0, cursor - 1),
      PageDown: () => cursor + Math.ceil(moments.length / 20),
      PageUp: () => Math.max(0, cursor - Math.ceil(moments.length / 20)),
      Home: () => 0,
      End: () => moments.length - 1,
      Escape: () => -1,
    }[event.key];
    if (!to || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    announce(read(to()));
  });
  new ResizeObserver(draw).observe(stage);

  return el(
    'figure',
    { class: 'chart' },
    el('figcaption', null, title),
    stage,
    el('p', { class: 'axis', 'aria-hidden': 'true' }, axis.name),
    el(
      'ul',
      { class: 'legend' },
      lines.map((line, at) =>
        el(
          'li',
          null,
          svg(
            'svg',
            { class: 'swatch', viewBox: '0 0 28 8', 'aria-hidden': 'true' },
            svg('path', { class: `line line-${at % LINES}`, d: 'M0 4H28' }),
          ),
          line.name,
          el('small', null, `at most ${format(most(line))}`),
        ),
      ),
    ),
  );
}

/** The place of the last entry that is at most `value`, or -1. */
function lastUpTo(sorted, value) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
