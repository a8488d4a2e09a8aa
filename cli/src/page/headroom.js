// Headroom: how many more pods of a shape fit, by pool and zone.

import { Latest, post } from './api.js';
import { announce, answer, count, el, LISTED, rest, table, whole } from './dom.js';

/** Returns the question by requests. */
export function headroom() {
  const cpu = el('input', { id: 'room-cpu', value: '1', size: 6 });
  const memory = el('input', { id: 'room-memory', value: '4Gi', size: 6 });
  const other = el('input', { id: 'room-other', placeholder: 'nvidia.com/gpu=1', size: 16 });
  const box = el('div');
  const latest = new Latest();
  const ask = (event) => {
    event.preventDefault();
    const more = other.value
      .split(/[\s,]+/)
      .filter(Boolean)
      .map((part) => part.split('='));
    const all = [['cpu', cpu.value.trim()], ['memory', memory.value.trim()], ...more].filter(
      ([, value]) => value,
    );
    run(box, latest, { requests: Object.fromEntries(all) });
  };
  return el(
    'details',
    { class: 'card' },
    el('summary', null, 'Headroom: how many more pods fit?'),
    el(
      'form',
      { class: 'tools', onsubmit: ask },
      el('label', { for: 'room-cpu' }, 'cpu'),
      cpu,
      el('label', { for: 'room-memory' }, 'memory'),
      memory,
      el('label', { for: 'room-other' }, 'other'),
      other,
      el('button', { class: 'primary' }, 'Ask'),
    ),
    box,
  );
}

/** Asks with a body of the API and shows the answer in `box`; without a text, in place of the previous one. */
export async function run(box, latest, body, text = 'Counting…') {
  const found = await answer(
    box,
    text,
    () => latest.run((signal) => post('headroom', body, { signal })),
    (found) => [
      el('p', { class: 'headline' }, headline(found)),
      // An older server gives neither `now` nor `not_simulated`.
      found.now !== undefined &&
        found.now !== found.count &&
        el(
          'p',
          null,
          `${whole(found.now)} ${found.now === 1 ? 'fits' : 'fit'} now, `,
          'before the terminating pods have ended.',
        ),
      found.by.length > 0 &&
        table(
          'By pool and zone',
          [
            { head: 'pool', cell: (it) => it.pool ?? 'no pool' },
            { head: 'zone', cell: (it) => it.zone ?? 'no zone' },
            { head: 'nodes', number: true, cell: (it) => whole(it.nodes) },
            { head: 'more pods', number: true, cell: (it) => whole(it.count) },
          ],
          [...found.by].sort((a, b) => b.count - a.count),
        ),
      found.not_simulated?.length > 0 && [
        el('h3', null, 'Not simulated'),
        el(
          'ul',
          null,
          found.not_simulated.slice(0, LISTED).map((it) => el('li', null, it)),
        ),
        rest(found.not_simulated.length),
      ],
    ],
  );
  if (found && text) announce(headline(found));
}

/** The count, which is a lower bound if the server ended counting before a copy did not fit. */
function headline({ count: all, is_complete: isComplete }) {
  const text = `${count(all, 'more pod')} of this shape ${all === 1 ? 'fits' : 'fit'}`;
  return isComplete === false ? `at least ${text}` : text;
}
