// An upgrade in steps, as a Gantt chart: a row for each step, one after the other.
//
// The simulation knows the order of evictions, not their duration; a unit of the axis is one eviction or one wait for a
// budget. The numbers are also columns, so that the chart is not the only form.

import { count, el, LISTED, rest, svg, table, whole } from './dom.js';

/** Returns the chart of an answer with an upgrade. */
export function upgrade({ upgrade: { steps, nodes, failed_step: failed } }) {
  const shown = steps.slice(0, LISTED);
  const length = (step) => Math.max(1, step.evicted + step.waits + step.blocked);
  const total = shown.reduce((sum, step) => sum + length(step), 0);
  let from = 0;
  const rows = shown.map((step, at) => {
    const row = { step, at: at + 1, from };
    from += length(step);
    return row;
  });
  return el(
    'div',
    { class: 'gantt' },
    el(
      'p',
      null,
      count(nodes, 'node'),
      failed ? `; the upgrade hangs in step ${whole(failed)}.` : ` in ${count(steps.length, 'step')}.`,
      el('span', { class: 'key evicted' }, 'evicted'),
      el('span', { class: 'key waits' }, 'wait for a budget'),
      el('span', { class: 'key blocked' }, 'blocked'),
      el('small', { class: 'below' }, 'Lengths count evictions and waits, not time.'),
    ),
    table(
      'Steps of the upgrade',
      [
        { head: 'step', number: true, cell: (it) => whole(it.at) },
        {
          head: 'nodes',
          cell: ({ step }) =>
            `${step.nodes.slice(0, 3).join(', ')}${step.nodes.length > 3 ? ` and ${step.nodes.length - 3} more` : ''}`,
        },
        { head: 'evicted', number: true, cell: ({ step }) => whole(step.evicted) },
        { head: 'waits', number: true, cell: ({ step }) => whole(step.waits) },
        { head: 'blocked', number: true, cell: ({ step }) => whole(step.blocked) },
        { head: 'without a node', number: true, cell: ({ step }) => whole(step.pending.length) },
        { head: el('span', { class: 'quiet' }, 'Chart'), cell: ({ step, from }) => bars(step, from, total) },
      ],
      rows,
    ),
    rest(steps.length),
  );
}

function bars({ evicted, waits, blocked }, from, total) {
  const parts = evicted + waits + blocked ? { evicted, waits, blocked } : { idle: 1 };
  let x = from;
  const bar = ([kind, width]) =>
    svg('rect', { x: (x += width) - width, y: 0, width, height: 10, class: kind });
  const shape = { viewBox: `0 0 ${total} 10`, preserveAspectRatio: 'none', 'aria-hidden': 'true' };
  return svg('svg', shape, ...Object.entries(parts).map(bar));
}
