// The view of a file with a comparison: charts with a line for each configuration, then a column for each.

import { get } from './api.js';
import { answer, el, short, sized, table, whole } from './dom.js';
import { recorded } from './recorded.js';
import { several } from './series.js';
import { share } from './share.js';

export default function create(root) {
  const box = el('div');
  root.append(box);
  const show = () =>
    answer(
      box,
      'Loading…',
      () => get('compare'),
      (found) => [
        el('p', { class: `headline ${found.broken.length ? 'bad' : ''}` }, recorded.about.headline),
        found.answers.slice(1).map(({ answer: text }) => el('p', { class: 'headline' }, text)),
        several(found.runs),
        figures(found.runs),
        left(found),
        pools(found.runs),
        differences(found.runs),
        seeds(found.runs),
        el('div', { class: 'tools' }, share('compare', found)),
      ],
    );
  return { show };
}

/** A table with a row for each `[name, value(run)]`, and a column for each run. */
function columns(caption, head, runs, rows) {
  return (
    rows.length > 0 &&
    el(
      'div',
      { class: 'facts' },
      table(
        caption,
        [
          { head, prose: true, cell: ([name]) => name },
          ...runs.map((run) => ({ head: run.config, number: true, cell: ([, value]) => value(run) })),
        ],
        rows,
      ),
    )
  );
}

const part = (value) => `${short(value)} %`;
const price = (value) => value.toFixed(2);
const used = ({ nodes }) => `${short(nodes.used)} of ${whole(nodes.all)}`;

function figures(runs) {
  const resources = [...new Set(runs.flatMap((run) => Object.keys(run.requested_on_used_percent)))];
  const isPriced = runs.some(({ nodes }) => nodes.price_per_hour);
  const hasWaits = runs.some((run) => run.wait_seconds.p50 !== null);
  return columns(
    'Figures',
    'figure',
    runs,
    [
      ['placed', (run) => whole(run.placed)],
      ['unschedulable', (run) => whole(run.unschedulable)],
      ['nodes used', used],
      isPriced && ['price of used nodes per hour', ({ nodes }) => price(nodes.price_per_hour.used)],
      isPriced && ['price of all nodes per hour', ({ nodes }) => price(nodes.price_per_hour.all)],
      ...resources.map((name) => [
        `requested ${name} on used nodes`,
        (run) => part(run.requested_on_used_percent[name] ?? 0),
      ]),
      ['cpu imbalance', (run) => part(run.imbalance_percent.cpu)],
      ['memory imbalance', (run) => part(run.imbalance_percent.memory)],
      ['pods on other nodes', (run) => whole(run.different)],
      ['cycles per second', (run) => whole(run.cycles_per_second)],
      hasWaits && [
        'waiting time, p50 and p99',
        ({ wait_seconds: waits }) => `${whole(waits.p50)} s, ${whole(waits.p99)} s`,
      ],
    ].filter(Boolean),
  );
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

function differences(runs) {
  const rows = runs.slice(1).filter((run) => run.first_difference);
  return (
    rows.length > 0 &&
    el(
      'div',
      { class: 'facts' },
      table(
        `The first pod on another node than with ${runs[0].config}`,
        [
          { head: 'configuration', prose: true, cell: (run) => run.config },
          { head: 'pod', prose: true, cell: (run) => run.first_difference.pod },
          { head: 'node', prose: true, cell: (run) => run.first_difference.here ?? 'unschedulable' },
          { head: 'instead of', prose: true, cell: (run) => run.first_difference.first ?? 'unschedulable' },
        ],
        rows,
      ),
    )
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
