// The view of a file with a replay: charts over its time, then its figures.

import { get } from './api.js';
import { part } from './comparison.js';
import { count, el, short, sized, table, whole } from './dom.js';
import { recorded } from './recorded.js';
import { single } from './series.js';
import { view } from './share.js';

export default function create(root) {
  return view(
    root,
    'replay',
    () => get('replay'),
    (found) => [
      el('h2', null, found.workload),
      el('p', { class: `headline ${found.failed ? 'bad' : 'good'}` }, recorded.about.headline),
      el('p', { class: 'hint' }, found.run),
      single(found.series),
      usage(found),
      reasons(found),
      figures(found),
      found.notes.map((text) => el('p', { class: 'hint' }, text)),
    ],
  );
}

/** A replay with times has a peak and a mean, since the cluster may be empty at its end. */
function usage({ utilization, duration_s: duration }) {
  const share = (value, { allocatable }) => part(allocatable > 0 ? (100 * value) / allocatable : 0);
  const of = (head, value) => ({
    head,
    number: true,
    cell: ([resource, it]) => [
      share(value(it), it),
      el('small', { class: 'below' }, sized(resource, value(it))),
    ],
  });
  const columns = [
    { head: 'resource', prose: true, cell: ([resource]) => resource },
    of('at the end', (it) => it.requested),
    ...(duration === null ? [] : [of('mean', (it) => it.mean ?? it.requested), of('peak', (it) => it.peak)]),
    { head: 'allocatable', number: true, cell: ([resource, it]) => sized(resource, it.allocatable) },
  ];
  return el('div', { class: 'facts' }, table('Requested resources', columns, Object.entries(utilization)));
}

function reasons({ reasons: all }) {
  const rows = Object.entries(all).sort(([, a], [, b]) => b - a);
  return (
    rows.length > 0 &&
    el(
      'div',
      { class: 'facts' },
      table(
        'Failed pods by reason (a pod can have several)',
        [
          { head: 'pods', number: true, cell: ([, pods]) => whole(pods) },
          { head: 'reason', prose: true, cell: ([reason]) => reason },
        ],
        rows,
      ),
    )
  );
}

function figures(found) {
  const waits = found.wait_seconds;
  const cycle = found.cycle_us;
  const rows = [
    ['nodes', whole(found.nodes)],
    ['pods', whole(found.pods)],
    ['placed', `${whole(found.placed)} (${part((100 * found.placed) / Math.max(1, found.pods))})`],
    ['failed', whole(found.failed)],
    found.preempted !== null && ['preempted and requeued', whole(found.preempted)],
    waits && [
      'waiting time',
      `p50 ${whole(waits.p50)} s, p99 ${whole(waits.p99)} s, max ${whole(waits.max)} s`,
    ],
    ['cycles per second', whole(found.cycles_per_second)],
    ['cycle time', `p50 ${short(cycle.p50)} µs, p99 ${short(cycle.p99)} µs, max ${short(cycle.max)} µs`],
    ['wall time', `${short(found.wall_s)} s on ${count(found.threads, 'thread')}`],
    ['decision hash', found.decision_hash],
  ].filter(Boolean);
  return el(
    'div',
    { class: 'facts' },
    table(
      'Figures',
      [
        { head: 'figure', cell: ([name]) => name },
        { head: 'value', prose: true, cell: ([, value]) => value },
      ],
      rows,
    ),
  );
}
