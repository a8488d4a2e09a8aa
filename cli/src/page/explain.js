// The explanation of a pod: why each node rejects it, by how much, and which changes would help.

import { Latest, post } from './api.js';
import { amount, announce, answer, count, el, short, table, whole } from './dom.js';
import { run as room } from './headroom.js';
import { heat } from './heat.js';
import { recorded } from './recorded.js';
import { go } from './route.js';
import { share } from './share.js';

const latest = new Latest();
const roomLatest = new Latest();
let counted; // The headroom of the pod that was explained last, which a refreshed explanation keeps.

/** Explains the pod or controller in `box`, or refreshes its explanation there. */
export async function explanation(box, pod, isRefresh = false) {
  const found = await answer(
    box,
    isRefresh ? null : `Explaining ${pod}…`,
    () => latest.run((signal) => post('explain', { pod }, { signal })),
    (found) => {
      const total = Object.keys(found.nodes ?? {}).length;
      if (!total && !found.groups)
        return [el('h2', null, found.pod), el('p', { class: 'headline' }, found.why ?? found.state)];
      return [
        el('h2', null, found.pod),
        el('p', { class: `headline ${tone(found)}` }, found.why),
        el(
          'p',
          { class: 'hint' },
          !recorded && `On generation ${whole(found.generation)}. `,
          found.node && 'A placed pod is evaluated as if it were pending.',
        ),
        el('div', { class: 'tools' }, share(`explain-${found.pod}`, found)),
        total > 0 && heat(found),
        found.groups.length > 0 && reasons(found.groups),
        found.notes.length > 0 &&
          el(
            'ul',
            null,
            found.notes.map((text) => el('li', null, text)),
          ),
        changes(found),
        found.preemption && preemption(found.preemption),
        found.fits_on > 0 && scores(found),
        !recorded && found.fits_on > 0 && headroom(found.pod),
        found.message &&
          el(
            'details',
            null,
            el('summary', null, 'Message of the scheduler'),
            el('p', { class: 'message' }, found.message),
          ),
      ];
    },
  );
  if (found && !isRefresh) announce(`${found.pod}: ${found.why ?? found.state}`);
  return found;
}

/**
 * Whether the pod would be scheduled. A pod that nodes accept may still wait at a gate, and one that has finished has
 * neither nodes nor a message.
 */
function tone({ state, fits_on: fits, why }) {
  if (state === 'finished') return '';
  return fits > 0 && !/(^|: )not (scheduled|evaluated)\b/.test(why) ? 'good' : 'bad';
}

function reasons(groups) {
  return table(
    'Why nodes reject the pod',
    [
      { head: 'nodes', number: true, cell: (it) => whole(it.nodes) },
      { head: 'only this', number: true, cell: (it) => whole(it.alone) },
      { head: 'reason', prose: true, cell: (it) => it.reason },
      groups.some((it) => it.shortfall) && {
        head: 'short by',
        cell: (it) => it.shortfall && shortfall(it.shortfall),
      },
      { head: 'plugin', cell: (it) => it.plugin },
      { head: 'preemption', cell: (it) => (it.code === 'Unschedulable' ? 'may help' : 'does not help') },
    ].filter(Boolean),
    // A reason that nodes do not share with another one comes first: without it, they would accept the pod.
    [...groups].sort((a, b) => b.alone - a.alone || b.nodes - a.nodes),
  );
}

/** A shortfall, which the API gives in the smallest unit of the resource. */
function shortfall({ resource, least, median, most }) {
  const text = (value) => {
    if (resource === 'cpu') return `${short(value / 1000)} ${value === 1000 ? 'core' : 'cores'}`;
    if (/^(memory|ephemeral-storage|hugepages-.*)$/.test(resource)) {
      return value < 2 ** 30
        ? `${short(value / 2 ** 20)} MiB`
        : amount(value / 2 ** 30, { name: resource, unit: 'GiB' });
    }
    return whole(value);
  };
  return least === most ? text(least) : `${text(least)} to ${text(most)}, median ${text(median)}`;
}

function changes({ changes: all, changes_complete: isComplete, fits_on: fits }) {
  if (!all.length)
    return (
      !fits &&
      el(
        'p',
        { class: 'hint' },
        isComplete
          ? 'No change was found that makes the pod fit.'
          : 'No change was found before the search ended.',
      )
    );
  return el(
    'div',
    null,
    table(
      'Changes that would make the pod fit',
      [
        { head: 'change', prose: true, cell: (it) => [it.what, ...it.notes].join('; ') },
        { head: 'nodes', number: true, cell: (it) => `${it.is_complete ? '' : '≥ '}${whole(it.nodes)}` },
        { head: 'for example', cell: (it) => it.examples.slice(0, 3).join(', ') },
        !recorded && {
          head: el('span', { class: 'quiet' }, 'Action'),
          cell: (it) => {
            const question = expressed(it);
            return (
              question &&
              el(
                'button',
                {
                  type: 'button',
                  'aria-label': `Try it: ${it.what}`,
                  onclick: () => go('what-if', { ask: JSON.stringify(question) }),
                },
                'Try it',
              )
            );
          },
        },
      ].filter(Boolean),
      all,
    ),
    !isComplete && el('p', { class: 'hint' }, 'The search ended before all changes were tried.'),
  );
}

/**
 * The change as a what-if question, or null. Only evictions have one: the other changes edit the pod or a node, which
 * the API does not. A pod with a controller is created again when it is removed, as after an eviction. A question has
 * one namespace; the server reports a name that several namespaces have.
 */
function expressed({ steps }) {
  const pods = [];
  const namespaces = new Set();
  for (const { kind, what } of steps) {
    const [, names] =
      (kind === 'evict' && /^evict (\S+\/\S+(?:, \S+\/\S+)*) from node \S+$/.exec(what)) || [];
    if (!names) return null;
    for (const [namespace, name] of names.split(', ').map((it) => it.split('/'))) {
      pods.push(`pod/${name}`);
      namespaces.add(namespace);
    }
  }
  if (!pods.length) return null;
  return { remove: pods, ...(namespaces.size === 1 && { namespace: [...namespaces][0] }) };
}

function preemption({ node, victims, budget_violations: violations }) {
  return el(
    'div',
    null,
    table(
      `Preemption on node ${node} would evict ${count(victims.length, 'pod')}`,
      [
        { head: 'victim', cell: (it) => it.pod },
        { head: 'state', cell: (it) => (it.is_terminating ? 'terminating' : 'running') },
      ],
      victims,
    ),
    violations > 0 &&
      el('p', { class: 'bad' }, `${count(violations, 'eviction')} would violate a disruption budget.`),
  );
}

/** The ten best nodes with their scores. */
function scores({ nodes, verdicts }) {
  const best = Object.entries(nodes)
    .map(([name, at]) => [name, verdicts[at]])
    .filter(([, it]) => it.fits)
    .sort(([, a], [, b]) => b.total - a.total)
    .slice(0, 10);
  // A plugin that scores no node adds a column without information.
  const plugins = [
    ...new Set(
      best.flatMap(([, it]) => it.scores.filter(({ weighted }) => weighted).map(({ plugin }) => plugin)),
    ),
  ];
  return table(
    'The best nodes by score',
    [
      { head: 'node', cell: ([name]) => name },
      { head: 'total', number: true, cell: ([, it]) => whole(it.total) },
      ...plugins.map((plugin) => ({
        head: plugin,
        number: true,
        cell: ([, it]) => whole(it.scores.find((score) => score.plugin === plugin)?.weighted ?? 0),
      })),
    ],
    best,
  );
}

function headroom(pod) {
  if (counted?.pod === pod) {
    if (counted.box.childElementCount) room(counted.box, roomLatest, { pod }, null);
    return counted.element;
  }
  const box = el('div');
  const element = el(
    'div',
    null,
    el(
      'button',
      { type: 'button', onclick: () => room(box, roomLatest, { pod }) },
      'How many more pods of this shape fit?',
    ),
    box,
  );
  counted = { pod, box, element };
  return element;
}
