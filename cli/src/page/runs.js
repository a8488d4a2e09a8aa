// The view of a file with a comparison: charts with a line for each configuration, then a column for each.

import { get } from './api.js';
import { columns, difference, figures, part, price, used } from './comparison.js';
import { el, short, sized, whole } from './dom.js';
import { recorded } from './recorded.js';
import { several } from './series.js';
import { view } from './share.js';

export default function create(root) {
  return view(
    root,
    'compare',
    () => get('compare'),
    (found) => [
      el('p', { class: `headline ${found.broken.length ? 'bad' : ''}` }, recorded.about.headline),
      found.answers.slice(1).map(({ answer: text }) => el('p', { class: 'headline' }, text)),
      several(found.runs),
      figures(found.runs, times(found.runs)),
      left(found),
      pools(found.runs),
      found.runs.slice(1).map((run) => difference(found.runs[0], run)),
      seeds(found.runs),
    ],
  );
}

/** The figures that differ between equal runs, and those of runs with times. */
function times(runs) {
  const hasWaits = runs.some((run) => run.wait_seconds.p50 !== null);
  return [
    ['cycles per second', (run) => whole(run.cycles_per_second)],
    hasWaits && [
      'waiting time, p50 and p99',
      ({ wait_seconds: waits }) => `${whole(waits.p50)} s, ${whole(waits.p99)} s`,
    ],
  ];
}

/** The capacity that is left at the end. */
function left({ shapes, runs }) {
  const known = runs.filter((run) => run.left);
  if (!known.length) return null;
  const stranded = Object.keys(known[0].left.stranded);
  return columns('Left at the end', 'capacity', known, [
    ...shapes.map(({ requests, represents }, at) => [
      `more copies of ${requests} (of ${whole(represents)} such pods)`,
      ({ left: it }) =>
        `${whole(it.more_copies[at])}${it.more_copies[at] === it.counted_up_to ? ' or more' : ''}`,
    ]),
    ['largest pod that fits', ({ left: it }) => it.largest_pod_that_fits ?? 'none'],
    ...stranded.map((name) => [
      `stranded ${name}`,
      ({ left: it }) => `${sized(name, it.stranded[name].amount)} (${part(it.stranded[name].percent)})`,
    ]),
  ]);
}

function pools(runs) {
  return columns(
    'Used nodes by pool',
    'pool',
    runs,
    Object.keys(runs[0].pools).map((name) => [
      name || 'no label',
      (run) => {
        const nodes = run.pools[name];
        const cost = nodes?.price_per_hour;
        return nodes && `${used({ nodes })}${cost ? `, price ${price(cost.used)}` : ''}`;
      },
    ]),
  );
}

/** The spread of each figure over the seeds. */
function seeds(runs) {
  return columns(
    'Means over the seeds, with the least and the most',
    'figure',
    runs,
    runs[0].seeds.map(({ figure }, at) => [
      figure,
      (run) => {
        const { mean, min, max, differs } = run.seeds[at];
        return `${short(mean)} (${short(min)} to ${short(max)}${differs ? ', apart' : ''})`;
      },
    ]),
  );
}
