// The parts of a comparison: the figures of its configurations, and the first decision that differs.

import { bar, count, el, short, table, whole } from './dom.js';

/** A table with a row for each `[name, value(run)]`, and a column for each run. */
export function columns(caption, head, runs, rows) {
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

/** A percentage. */
export const part = (value) => `${short(value)} %`;
export const price = (value) => value.toFixed(2);
/** The number of used nodes. */
export const used = ({ nodes }) => `${short(nodes.used)} of ${whole(nodes.all)}`;

/** The figures of all configurations, a column each, with further rows. */
export function figures(runs, more = []) {
  const resources = [...new Set(runs.flatMap((run) => Object.keys(run.requested_on_used_percent)))];
  const isPriced = runs.some(({ nodes }) => nodes.price_per_hour);
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
      ...more,
    ].filter(Boolean),
  );
}

/** The first pod that two configurations place differently, with the scores of both nodes under both. */
export function difference(first, other) {
  const found = other.first_difference;
  const title = el('h2', null, `${other.config} against ${first.config}`);
  if (!found) return [title, el('p', null, 'Every pod is placed on the same node.')];
  const on = (node) => node ?? 'no node';
  const sides = (found.scores ?? []).flatMap(({ node, first: one, here }) => [
    { node, config: first.config, verdict: one },
    { node, config: other.config, verdict: here },
  ]);
  const scores = ({ verdict }) => verdict?.scores ?? [];
  const plugins = [
    ...new Set(
      sides.flatMap((it) => scores(it).flatMap(({ plugin, weighted }) => (weighted ? [plugin] : []))),
    ),
  ];
  const largest = Math.max(1, ...sides.flatMap((it) => scores(it).map(({ weighted }) => weighted)));
  const cell = (column) => (plugin) => {
    const { verdict } = column;
    if (!verdict?.fits) return plugin === null ? refusal(verdict) : '';
    if (plugin === null) return el('b', null, whole(verdict.total));
    const weighted = scores(column).find((it) => it.plugin === plugin)?.weighted ?? 0;
    return [bar(weighted / largest), ' ', whole(weighted)];
  };
  return [
    title,
    el(
      'p',
      null,
      `The first decision that differs: pod ${found.pod} is placed on ${on(found.here)} `,
      `instead of ${on(found.first)}. ${count(other.different, 'pod')} in all `,
      `${other.different === 1 ? 'is' : 'are'} placed elsewhere.`,
    ),
    sides.length > 0 &&
      el(
        'div',
        { class: 'facts' },
        table(
          `Scores for ${found.pod} before this decision`,
          [
            { head: 'plugin', cell: (plugin) => plugin ?? el('b', null, 'total') },
            ...sides.map((column) => ({
              head: `${column.node}, ${column.config}`,
              number: true,
              cell: cell(column),
            })),
          ],
          [...plugins, null],
        ),
      ),
  ];
}

/** Why a node is not scored. */
function refusal(verdict) {
  const reasons = verdict?.rejections?.flatMap((it) => it.reasons) ?? [];
  return reasons.length ? reasons.join(', ') : 'not evaluated';
}
