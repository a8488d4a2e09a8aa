// Charts of replays: requested resources by pool, and waiting pods by cause; or one of these for several runs.

import { chart, LINES } from './chart.js';
import { clock } from './clock.js';
import { el, fill, short, whole } from './dom.js';
import { duration } from './moment.js';

const share = (value) => `${short(value)} %`;

/** Returns the charts of one run. */
export function single(series) {
  const axis = clock(series.clock);
  return [
    chosen('Pool', series.pools.map(poolName), (at) =>
      chart({
        title: 'Requested, in percent of allocatable',
        axis,
        lines: series.pools[at].requested.map(({ resource, values }) => ({
          name: resource,
          at: series.at,
          values,
        })),
        format: share,
        isCount: false,
      }),
    ),
    series.waiting.length
      ? chart({ title: 'Waiting pods by cause', axis, lines: waiting(series) })
      : el('p', null, 'No pod waits.'),
    series.clock.duration > series.clock.end &&
      el(
        'p',
        { class: 'hint' },
        'The charts end soon after the last pod has arrived and none waits; ',
        `the last pod ends after ${duration(series.clock.duration)}.`,
      ),
  ];
}

/** Returns the charts of several runs, each a line. */
export function several(runs) {
  const end = Math.max(...runs.map(({ series }) => series.clock.end));
  const axis = clock({ ...runs[0].series.clock, end });
  const lines = (values) =>
    runs.slice(0, LINES).map((run) => ({ name: run.config, at: run.series.at, values: values(run.series) }));
  const total = ({ at, waiting: causes }) =>
    at.map((_, place) => causes.reduce((sum, { values }) => sum + values[place], 0));
  const choices = runs[0].series.pools.flatMap((pool, at) =>
    pool.requested.map(({ resource }) => ({ at, resource, name: `${resource}, ${poolName(pool)}` })),
  );
  const requested =
    ({ at, resource }) =>
    (series) =>
      series.pools[at].requested.find((it) => it.resource === resource).values;
  return [
    chart({ title: 'Nodes in use', axis, lines: lines((it) => it.nodes_used) }),
    chart({ title: 'Waiting pods', axis, lines: lines(total) }),
    chosen(
      'Resource',
      choices.map(({ name }) => name),
      (at) =>
        chart({
          title: 'Requested, in percent of allocatable',
          axis,
          lines: lines(requested(choices[at])),
          format: share,
          isCount: false,
        }),
    ),
    runs.length > LINES && el('p', { class: 'rest' }, `The charts show ${LINES} of ${runs.length} runs.`),
  ];
}

const poolName = ({ name, nodes }) => `${name === null ? 'all nodes' : name || 'no pool'} (${whole(nodes)})`;

const waiting = ({ at, waiting: causes }) => causes.map(({ cause, values }) => ({ name: cause, at, values }));

let last = 0; // The id of the newest choice.

/** Returns a choice, and what it chooses. */
function chosen(label, names, show) {
  if (!names.length) return null;
  const id = `choice-${(last += 1)}`;
  const box = el('div');
  const select = el(
    'select',
    { id, onchange: () => fill(box, show(Number(select.value))) },
    names.map((name, value) => el('option', { value }, name)),
  );
  fill(box, show(0));
  return [names.length > 1 && el('p', { class: 'tools' }, el('label', { for: id }, label), select), box];
}
