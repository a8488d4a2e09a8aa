// The rejections of a pod as a picture: a row for each plugin, a column for each node.
//
// Nodes with the same rejections stand together, so that the picture has a few wide blocks. If there are more nodes
// than columns, a column is the share of its nodes that the plugin rejects. The table of reasons has the same numbers
// as text.

import { count, el, whole } from './dom.js';
import { recorded } from './recorded.js';
import { palette } from './tiles.js';
import { go, route } from './route.js';

const ROW = 22;
const FITS = 'fits';

// One picture is shown at a time: a listener for each would keep the nodes of all of them.
let repaint = () => {};
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => repaint());

/** Returns the picture of an explanation. */
export function heat({ nodes, verdicts, fits_on: fits }) {
  const names = Object.keys(nodes);
  const plugins = frequent(names.map((name) => verdicts[nodes[name]]));
  const rows = [...plugins.map(([plugin]) => plugin), ...(fits ? [FITS] : [])];
  /** How a row is for a verdict: 0, 1 if it rejects, 2 if preemption does not help. */
  const value = (row, verdict) => {
    if (row === FITS) return verdict.fits ? 1 : 0;
    const status = verdict.rejections?.find((it) => it.plugin === row);
    return status ? (status.code === 'Unschedulable' ? 1 : 2) : 0;
  };
  const values = verdicts.map((verdict) => rows.map((row) => value(row, verdict)));
  const keys = values.map((of) => of.join(''));
  const order = names
    .map((name) => ({ name, verdict: nodes[name] }))
    .sort((a, b) => (keys[a.verdict] < keys[b.verdict]) - (keys[a.verdict] > keys[b.verdict]));
  const numbers = [...plugins, [FITS, fits]].map(([row, all]) => `${row} ${count(all, 'node')}`);
  const canvas = el('canvas', {
    role: 'img',
    'aria-label': `Rejections by plugin: ${numbers.join(', ')}`,
  });
  const tip = el('div', { class: 'tip', hidden: true });
  const box = el('div', { class: 'heat-canvas' }, canvas, tip);
  const height = rows.length * ROW;
  canvas.style.height = `${height}px`;

  function paint() {
    const ratio = devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * ratio);
    if (!width) return;
    canvas.width = width;
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext('2d');
    const colors = palette();
    const columns = Math.min(width, order.length);
    const [soft, hard, good] = ['--rejects', '--refuses', '--fits'].map((name) =>
      getComputedStyle(document.documentElement).getPropertyValue(name).trim(),
    );
    rows.forEach((row, line) => {
      const top = Math.round(line * ROW * ratio);
      const thick = Math.round((ROW - 3) * ratio);
      context.globalAlpha = 1;
      context.fillStyle = colors.track;
      context.fillRect(0, top, width, thick);
      for (let column = 0; column < columns; column++) {
        const from = Math.floor((column * order.length) / columns);
        const to = Math.max(from + 1, Math.floor(((column + 1) * order.length) / columns));
        let [some, most] = [0, 0];
        for (let at = from; at < to; at++) {
          const found = values[order[at].verdict][line];
          some += found > 0;
          most = Math.max(most, found);
        }
        if (!some) continue;
        context.globalAlpha = 0.35 + (0.65 * some) / (to - from);
        context.fillStyle = row === FITS ? good : most === 2 ? hard : soft;
        const left = Math.floor((column * width) / columns);
        const right = Math.floor(((column + 1) * width) / columns);
        const gap = (right - left) / ratio > 5 ? 1 : 0;
        context.fillRect(left, top, Math.max(1, right - left - gap), thick);
      }
    });
  }

  const nodeAt = (event) =>
    order[
      Math.min(order.length - 1, Math.max(0, Math.floor((event.offsetX / canvas.clientWidth) * order.length)))
    ];
  canvas.addEventListener('pointermove', (event) => {
    const { name, verdict } = nodeAt(event);
    const all = verdicts[verdict].rejections ?? [];
    tip.hidden = false;
    tip.replaceChildren(
      el('b', null, name),
      ...(all.length
        ? all.map((it) => el('p', null, `${it.plugin}: ${it.reasons.join('; ')}`))
        : [el('p', null, 'The pod fits.')]),
    );
    tip.style.left = `${Math.max(0, Math.min(event.offsetX + 12, canvas.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = `${event.offsetY + 16}px`;
  });
  canvas.addEventListener('pointerleave', () => {
    tip.hidden = true;
  });
  if (!recorded)
    canvas.addEventListener('click', (event) =>
      go('fleet', { session: route().params.session, node: nodeAt(event).name }),
    );
  new ResizeObserver(paint).observe(canvas);
  repaint = paint;

  const all = new Map(plugins);
  return el(
    'figure',
    { class: 'heat' },
    el(
      'figcaption',
      null,
      `${count(names.length, 'node')} by plugin that rejects the pod. `,
      el('span', { class: 'key rejects' }, 'preemption may help'),
      el('span', { class: 'key refuses' }, 'preemption does not help'),
      fits > 0 && el('span', { class: 'key fits' }, 'fits'),
    ),
    el(
      'div',
      { class: 'heat-rows' },
      el(
        'ol',
        { 'aria-hidden': 'true' },
        rows.map((row) =>
          el(
            'li',
            null,
            row === FITS ? 'fits' : row,
            el('b', null, whole(row === FITS ? fits : all.get(row))),
          ),
        ),
      ),
      box,
    ),
  );
}

/** The plugins that reject nodes with the number of nodes, the most frequent first. */
function frequent(verdicts) {
  const counts = new Map();
  for (const { rejections = [] } of verdicts) {
    for (const plugin of new Set(rejections.map((it) => it.plugin)))
      counts.set(plugin, (counts.get(plugin) ?? 0) + 1);
  }
  return [...counts].sort(([, a], [, b]) => b - a);
}
