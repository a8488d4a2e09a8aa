// The answer to a what-if question: its first line, then only what the change causes.
//
// Rows that also happen without the change are counted, and shown on request.

import { count, el, LISTED, rest, table, whole } from './dom.js';
import { upgrade } from './upgrade.js';

const pod = { head: 'pod', cell: (it) => it.pod };
const from = { head: 'from', cell: (it) => it.from };
const why = { head: 'why', prose: true, cell: (it) => it.why };

/** What a change harms, and its side effects. Pods with the same cause share a row. */
const CAUSES = [
  { key: 'blocked', title: 'Blocked', isBad: true },
  { key: 'lost', title: 'Lost', isBad: true },
  { key: 'unplaced', title: 'Without a node', isBad: true },
  { key: 'waiting', title: 'Waiting until pods have terminated' },
  { key: 'pending', title: 'Still pending' },
  { key: 'skipped', title: 'Left on drained nodes' },
];

/** Where pods go. */
const MOVES = [
  { key: 'preempted', title: 'Preempted', columns: [pod, from, { head: 'by', cell: (it) => it.by }] },
  { key: 'placed', title: 'Placed', columns: [pod, from, { head: 'to', cell: (it) => it.to }] },
  { key: 'removed', title: 'Removed', columns: [pod, from] },
];

/** Returns the nodes of an answer to a question. `sides` shows the nodes of the cluster in place of their balance. */
export function outcome(answer, question, sides) {
  return [
    el('p', { class: `headline ${answer.ok ? 'good' : 'bad'}` }, answer.headline),
    figures(answer),
    sides,
    answer.upgrade && upgrade(answer),
    answer.budgets.length > 0 && budgets(answer.budgets),
    answer.consolidate && consolidation(answer.consolidate),
    answer.each && failures(answer.each, 'Failures, the worst first', { isLossAccepted: question.force }),
    CAUSES.map((part) => rows(part, answer[part.key] ?? [])),
    !sides && balance(answer),
    MOVES.map((part) => rows(part, answer[part.key] ?? [])),
    answer.scaled.length > 0 &&
      table(
        'Scaled',
        [
          { head: 'controller', cell: (it) => it.controller },
          { head: 'pods before', number: true, cell: (it) => whole(it.from) },
          { head: 'pods after', number: true, cell: (it) => whole(it.to) },
        ],
        answer.scaled,
      ),
    answer.kubectl_flags.length > 0 &&
      el('p', { class: 'hint' }, 'kubectl drain needs: ', el('code', null, answer.kubectl_flags.join(' '))),
    answer.not_simulated.length > 0 && notes('Not simulated', answer.not_simulated),
    answer.notes.length > 0 && notes('Notes', answer.notes),
  ];
}

/** The failures of nodes or zones that harm pods, the worst first. The first line of the answer counts the others. */
export function failures({ failures: all, nodes_without_zone: without }, caption, { limit, isLossAccepted }) {
  const harmed = (it) => [...new Set([...(isLossAccepted ? [] : it.lost), ...it.during, ...it.after])];
  const rows = all.map((it) => ({ ...it, harmed: harmed(it) })).filter((it) => it.harmed.length > 0);
  // Until all have ended, they are in the order in which they ended.
  rows.sort((a, b) => b.harmed.length - a.harmed.length);
  return [
    rows.length > 0 &&
      table(
        caption,
        [
          { head: 'failure', cell: (it) => it.name },
          { head: 'nodes', number: true, cell: (it) => whole(it.nodes.length) },
          { head: 'without a node during the outage', number: true, cell: (it) => whole(it.during.length) },
          { head: 'without a node after it', number: true, cell: (it) => whole(it.after.length) },
          { head: 'lost', number: true, cell: (it) => whole(it.lost.length) },
          { head: 'harmed pods', cell: (it) => pods(it.harmed) },
        ],
        rows,
        { limit },
      ),
    without > 0 && el('p', { class: 'hint' }, `${count(without, 'node')} without a zone did not fail.`),
  ];
}

/** The names of pods; more than two are folded. */
export function pods(all) {
  const names = [...new Set(all)];
  return names.length > 2
    ? el(
        'details',
        null,
        el('summary', null, `${names[0]} and ${whole(names.length - 1)} more`),
        el(
          'ul',
          null,
          names.slice(0, LISTED).map((name) => el('li', null, name)),
        ),
        rest(names.length),
      )
    : names.join(', ');
}

function figures(answer) {
  const own = (key) => (answer[key] ?? []).filter((it) => !it.without_change).length;
  const moved = answer.placed.filter((it) => !it.without_change && it.from).length;
  const all = [
    ['nodes', answer.nodes],
    ['added', answer.added],
    ['moved', moved],
    ['placed anew', own('placed') - moved],
    ['without a node', own('unplaced'), 'bad'],
    ['lost', own('lost'), 'bad'],
    ['blocked', own('blocked'), 'bad'],
    ['preempted', own('preempted')],
  ];
  return el(
    'dl',
    { class: 'figures' },
    all
      .filter(([name, value]) => value > 0 || name === 'nodes')
      .map(([name, value, tone]) =>
        el('div', { class: tone }, el('dt', null, name), el('dd', null, whole(value))),
      ),
  );
}

/** The rows of a part: those that the change causes, then those that also happen without it. */
function rows({ key, title, columns, isBad }, all) {
  const own = all.filter((it) => !it.without_change);
  const others = all.filter((it) => it.without_change);
  const show = (caption, rows) =>
    columns
      ? table(caption, columns, rows)
      : table(
          caption,
          [
            { head: 'pods', number: true, cell: (it) => whole(it.length) },
            {
              head: 'names and cause',
              prose: true,
              cell: (it) => [
                pods(it.map(({ pod, from, node }) => ((from ?? node) ? `${pod} on ${from ?? node}` : pod))),
                el('small', { class: 'below' }, it[0].why),
              ],
            },
          ],
          byCause(rows),
        );
  return [
    own.length > 0 &&
      el(
        'div',
        { class: isBad ? 'part harm' : 'part', 'data-part': key },
        show(`${title}: ${count(own.length, 'pod')}`, own),
      ),
    others.length > 0 &&
      el(
        'details',
        null,
        el('summary', null, `${title}, also without the change: ${count(others.length, 'pod')}`),
        show(`${title}, also without the change`, others),
      ),
  ];
}

/** The rows with the same cause, the most frequent cause first. */
export function byCause(rows) {
  const found = new Map();
  for (const row of rows) {
    if (!found.has(row.why)) found.set(row.why, []);
    found.get(row.why).push(row);
  }
  return [...found.values()].sort((a, b) => b.length - a.length);
}

/** The nodes of each pod before and after. A pod may be in several parts, such as preempted and then placed. */
export function moves(answer) {
  const found = new Map();
  for (const key of ['placed', 'unplaced', 'lost', 'removed', 'preempted']) {
    for (const { pod, from, to, without_change: isCommon } of answer[key]) {
      const known = found.get(pod);
      found.set(pod, { from: known?.from ?? from, to: known?.to ?? to, isCommon });
    }
  }
  return found;
}

/** The nodes that gain or lose pods, as bars to the right and to the left. */
function balance(answer) {
  const change = new Map();
  const add = (name, number) => name && change.set(name, (change.get(name) ?? 0) + number);
  for (const { from, to, isCommon } of moves(answer).values()) {
    if (isCommon) continue;
    add(from, -1);
    add(to, 1);
  }
  const all = [...change].filter(([, pods]) => pods !== 0).sort(([, a], [, b]) => a - b);
  if (all.length < 2) return null;
  const most = Math.max(...all.map(([, pods]) => Math.abs(pods)));
  const shown = all.length > 12 ? [...all.slice(0, 6), ...all.slice(-6)] : all;
  return el(
    'div',
    null,
    table(
      'Nodes that lose and gain the most pods',
      [
        { head: 'node', cell: ([name]) => name },
        {
          head: 'pods',
          number: true,
          cell: ([, pods]) => (pods > 0 ? `+${whole(pods)}` : `−${whole(-pods)}`),
        },
        {
          head: el('span', { class: 'quiet' }, 'Balance'),
          cell: ([, pods]) => {
            const level = el('span', { class: pods > 0 ? 'gain' : 'loss' });
            level.style.width = `${(50 * Math.abs(pods)) / most}%`;
            return el('span', { class: 'balance', 'aria-hidden': 'true' }, level);
          },
        },
      ],
      shown,
    ),
    all.length > shown.length &&
      el('p', { class: 'rest' }, `${shown.length} of ${count(all.length, 'node')} shown`),
  );
}

function budgets(all) {
  return table(
    'Disruption budgets that hold up drains',
    [
      { head: 'budget', prose: true, cell: (it) => [it.budget, el('small', { class: 'below' }, it.why)] },
      { head: 'waits', number: true, cell: (it) => whole(it.waits) },
      { head: 'blocks', cell: (it) => pods(it.blocks) },
    ],
    all,
  );
}

function consolidation({ remove, remain, moves, complete }) {
  return el(
    'div',
    null,
    !complete && el('p', null, 'The search ended at its time limit.'),
    remove.length > 0 &&
      table(
        'Nodes that can be removed',
        [
          { head: 'node', cell: (it) => it.node },
          {
            head: 'pods',
            number: true,
            cell: (it) => (Array.isArray(it.pods) ? whole(it.pods.length) : whole(it.pods)),
          },
        ],
        remove,
      ),
    moves.length > 0 && table('Moves', [pod, from, { head: 'to', cell: (it) => it.to }], moves),
    el(
      'details',
      null,
      el('summary', null, 'Nodes that remain'),
      table('Nodes that remain', [{ head: 'node', cell: (it) => it.node }, why], remain),
    ),
  );
}

function notes(title, all) {
  return el(
    'div',
    null,
    el('h3', null, title),
    el(
      'ul',
      null,
      all.map((text) => el('li', null, text)),
    ),
  );
}
