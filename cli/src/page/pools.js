// Upgrades: a light for each pool of nodes, whether it can be upgraded now.
//
// The pools are asked about one after the other, so that the first light is there before the last question begins. The
// light has a shape and a word. A pool whose question fails does not end the others.

import { get, Latest, post } from './api.js';
import { announce, count, el, empty, failure, fill, loading, refill, table, whole } from './dom.js';
import { byCause, pods } from './outcome.js';
import { href } from './route.js';

/** The part of the view, with `reset()` for another cluster. */
export default function pools() {
  const latest = new Latest();
  const result = el('div', { class: 'result', tabindex: -1 });
  const begin = el('button', { type: 'button', class: 'primary', onclick: run }, 'Try to upgrade each pool');
  const stop = el('button', { type: 'button', hidden: true, onclick: cancel }, 'Cancel');
  const element = el(
    'section',
    { 'aria-labelledby': 'upgrades-title' },
    el('h2', { id: 'upgrades-title' }, 'Upgrades'),
    el('div', { class: 'tools' }, begin, stop),
    result,
  );
  let rows = []; // The pools, each with its answer or problem when there is one.

  function reset() {
    latest.cancel();
    rows = [];
    fill(
      result,
      empty('No upgrade tried yet', 'Try to upgrade each pool, one new node at a time, to see what holds it up.'),
    );
  }

  function cancel() {
    latest.cancel();
    const tried = rows.filter(isTried).length;
    for (const row of rows) row.isAsked = false;
    if (rows.length) show(`Cancelled: ${tried} of ${count(rows.length, 'pool')} tried`);
    else reset();
    result.focus({ preventScroll: true }); // The button is hidden now.
  }

  async function run() {
    begin.disabled = true;
    stop.hidden = false;
    result.setAttribute('aria-busy', 'true');
    fill(result, loading('Looking for pools…'));
    const began = performance.now();
    try {
      const nodes = await latest.run(ask);
      if (nodes) {
        refill(result, summary(nodes, began));
        announce(result.querySelector('.headline, .title').textContent);
      }
    } catch (error) {
      if (!error.title) console.error(error);
      fill(result, failure(error, run));
    } finally {
      begin.disabled = false;
      stop.hidden = true;
      result.removeAttribute('aria-busy');
    }
  }

  /** Asks about each pool in turn. Returns the nodes of the cluster. */
  async function ask(signal) {
    rows = [];
    const found = await get('nodes', { signal });
    rows = found.pools;
    for (const row of rows) {
      signal.throwIfAborted();
      row.isAsked = true;
      show(`${rows.filter(isTried).length} of ${count(rows.length, 'pool')} tried…`);
      try {
        row.answer = await post('what-if', { upgrade: row.selector }, { signal });
      } catch (error) {
        if (signal.aborted || !error.status) throw error; // An error without a status: the server is gone.
        row.problem = error;
      }
      row.isAsked = false;
    }
    return found;
  }

  /** Shows the pools whose questions are not all answered. */
  function show(headline) {
    refill(result, el('p', { class: 'headline' }, headline), lights(rows));
  }

  function summary({ nodes }, began) {
    const without = nodes.filter((node) => node.pool === null).length;
    const rest = without > 0 && el('p', { class: 'hint' }, `${count(without, 'node')} without a pool.`);
    if (!rows.length)
      return empty('No pools', 'No node has the label of a pool, such as pool or eks.amazonaws.com/nodegroup.');
    const ready = rows.filter((row) => row.answer?.ok).length;
    const generations = rows.flatMap((row) => row.answer?.generation ?? []);
    const [first, last] = [Math.min(...generations), Math.max(...generations)];
    return [
      el(
        'p',
        { class: `headline ${ready === rows.length ? 'good' : 'bad'}` },
        `${whole(ready)} of ${count(rows.length, 'pool')} can be upgraded`,
      ),
      lights(rows),
      rest,
      generations.length > 0 &&
        el(
          'p',
          { class: 'hint' },
          first === last ? `On generation ${whole(first)}` : `On generations ${whole(first)} to ${whole(last)}`,
          `, in ${((performance.now() - began) / 1000).toFixed(1)} s`,
        ),
    ];
  }

  return { element, reset };
}

const isTried = (row) => Boolean(row.answer ?? row.problem);

function lights(rows) {
  return table(
    'Pools',
    [
      { head: 'pool', cell: (it) => [it.name, el('small', { class: 'below' }, it.selector)] },
      { head: 'upgrade', cell: light },
      { head: 'nodes', number: true, cell: (it) => whole(it.nodes) },
      { head: 'answer', prose: true, cell: told },
      { head: 'held up by', prose: true, cell: causes },
    ],
    rows,
    { limit: rows.length },
  );
}

/** The rows of an answer that the change causes. */
const own = (rows) => rows.filter((it) => !it.without_change);

function light({ answer, problem, isAsked }) {
  const of = (shape, text) => el('span', { class: `light ${shape}` }, text);
  if (problem) return of('unknown', 'no answer');
  if (!answer) return of('unknown', isAsked ? 'trying…' : 'not tried');
  if (answer.ok) return of('good', 'can be upgraded');
  const { failed_step: failed } = answer.upgrade;
  if (failed !== null) return of('hangs bad', `hangs in step ${whole(failed)}`);
  const harms = [
    ['unschedulable', own(answer.unplaced).length],
    ['lost', own(answer.lost).length],
  ].filter(([, pods]) => pods > 0);
  return of('harms bad', harms.map(([harm, pods]) => `pods ${harm}: ${whole(pods)}`).join(', '));
}

function told({ answer, problem, selector }) {
  if (!answer) return problem && `${problem.title}: ${problem.detail ?? ''}`;
  const link = href('what-if', { ask: JSON.stringify({ upgrade: selector }) });
  return [el('div', null, answer.headline), el('a', { href: link }, 'Open in What-if')];
}

/** The budgets that block drains or make them wait, then the other pods that are harmed. */
function causes({ answer }) {
  if (!answer) return '';
  const blocked = new Set(answer.budgets.flatMap((it) => it.blocks));
  const others = answer.blocked.filter((it) => !blocked.has(it.pod));
  return [
    answer.budgets.map(({ budget, waits, why }) =>
      el(
        'div',
        null,
        `budget ${budget}`,
        el('small', { class: 'below' }, why ?? `${count(waits, 'wait')} for it`),
      ),
    ),
    [others, own(answer.unplaced), own(answer.lost)].flatMap(byCause).map((all) =>
      el('div', null, pods(all.map((it) => it.pod)), el('small', { class: 'below' }, all[0].why)),
    ),
  ];
}
