// Duel: the pods of the cluster are scheduled under several configurations, which are then compared.
//
// A comparison that was asked for is in the address (`compare`).

import { Latest, post } from './api.js';
import { difference, figures } from './comparison.js';
import { announce, answer, count, el, empty, failure, fill, percent, svg, table, whole } from './dom.js';
import { go, place, session } from './route.js';
import { brief } from './sessions.js';
import { share } from './share.js';

/** The bounds of the API. */
const [LEAST, MOST] = [2, 8];

/** A configuration that fills nodes instead of spreading pods. */
const PACKS = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
        resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]
`;

export default function create(root) {
  const latest = new Latest();
  const configs = el('div', { class: 'question' });
  const pods = el(
    'select',
    { id: 'duel-pods' },
    el('option', { value: 'all' }, 'all pods, placed anew'),
    el('option', { value: 'pending' }, 'pending pods only'),
  );
  const price = el('input', { id: 'duel-price', placeholder: 'of the price per hour' });
  const add = el(
    'button',
    { type: 'button', onclick: () => append('').querySelector('textarea').focus() },
    'Add a configuration',
  );
  const ask = el('button', { class: 'primary' }, 'Compare');
  const stop = el('button', { type: 'button', hidden: true, onclick: cancel }, 'Cancel');
  const result = el('section', { class: 'grow', 'aria-label': 'Comparison' });
  let shown; // The address of the answer.
  let runs = 0;
  const form = el(
    'form',
    { class: 'question', onsubmit: submit },
    configs,
    el('div', { class: 'field' }, el('label', { for: 'duel-pods' }, 'Pods'), pods),
    el('div', { class: 'field' }, el('label', { for: 'duel-price' }, 'Price label'), price),
    el('div', { class: 'tools' }, ask, stop, add),
  );
  const split = el('div', { class: 'split' }, el('div', { class: 'narrow' }, form), result);
  root.append(split);
  set({ configs: ['', PACKS] });

  function texts() {
    return [...configs.querySelectorAll('textarea')];
  }

  function append(text) {
    const area = el('textarea', {
      rows: text ? 11 : 3,
      spellcheck: 'false',
      placeholder: 'empty: the default profile',
    });
    area.value = text;
    const remove = el(
      'button',
      {
        type: 'button',
        class: 'plain',
        onclick: () => {
          field.remove();
          number();
          add.focus();
        },
      },
      'Remove',
    );
    const field = el('fieldset', null, el('legend'), area, remove);
    configs.append(field);
    number();
    return field;
  }

  /** Names the fields after a change of their number. */
  function number() {
    const fields = [...configs.children];
    fields.forEach((field, at) => {
      const name = `Configuration ${at + 1}`;
      fill(field.querySelector('legend'), name);
      field.querySelector('textarea').setAttribute('aria-label', `${name}: a KubeSchedulerConfiguration`);
      const remove = field.querySelector('button');
      remove.setAttribute('aria-label', `Remove configuration ${at + 1}`);
      remove.hidden = fields.length <= LEAST;
    });
    add.disabled = fields.length >= MOST;
  }

  function set(question) {
    configs.replaceChildren();
    question.configs.forEach(append);
    pods.value = question.pods ?? 'all';
    price.value = question.price_label ?? '';
  }

  function submit(event) {
    event.preventDefault();
    const question = {
      configs: texts().map((it) => it.value),
      pods: pods.value,
      ...(price.value.trim() && { price_label: price.value.trim() }),
    };
    go('duel', { compare: JSON.stringify(question) });
  }

  function cancel() {
    latest.cancel();
    idle();
  }

  function idle() {
    fill(
      result,
      empty(
        'Nothing compared yet',
        'Edit two or more configurations and compare them: which one needs fewer nodes for the same pods?',
      ),
    );
  }

  function show(params) {
    const question = parse(params.compare);
    const key = JSON.stringify([place(), params.compare]);
    split.classList.toggle('answered', Boolean(params.compare));
    if (question) {
      set(question);
      run(question);
    } else if (params.compare) {
      latest.cancel();
      const detail = 'Its part compare must be a JSON object with configs, a list of texts.';
      fill(result, failure({ title: 'The address has no comparison', detail }));
    } else if (key !== shown) {
      cancel();
    }
    shown = key;
  }

  async function run(question) {
    const mine = ++runs;
    stop.hidden = false;
    const found = await answer(
      result,
      `Scheduling under ${count(question.configs.length, 'configuration')}…`,
      () =>
        latest
          .run((signal) => post('compare', question, { signal }))
          .catch((error) => {
            blame(error.detail);
            throw error;
          }),
      (found) => [
        found.answers.map((it) => el('p', { class: 'headline' }, it.answer)),
        el(
          'p',
          { class: 'hint' },
          session() ? `On session ${brief(session())}.` : `On generation ${found.generation}.`,
        ),
        el('div', { class: 'tools' }, share('comparison', found)),
        figures(found.runs),
        curves(found.runs),
        found.runs.slice(1).map((run) => difference(found.runs[0], run)),
      ],
    );
    if (mine === runs) stop.hidden = true;
    if (!found) return;
    announce(found.answers.map((it) => it.answer).join(' '));
    if (result.getBoundingClientRect().top > innerHeight * 0.6) result.scrollIntoView();
  }

  /** Marks the configuration that an error names. */
  function blame(detail) {
    const at = /^configuration (\d+)\b/.exec(detail ?? '')?.[1];
    texts()[at - 1]?.setAttribute('aria-invalid', 'true');
  }

  return { show };
}

/** The question of an address, or null if it is not one. */
function parse(text) {
  try {
    const value = JSON.parse(text);
    const isText = (it) => typeof it === 'string';
    return Array.isArray(value?.configs) && value.configs.every(isText) ? value : null;
  } catch {
    return null;
  }
}

/** For each resource, the requested shares of the nodes, the fullest node first: a line for each configuration. */
function curves(runs) {
  const names = Object.keys(runs[0].fill_percent);
  if (!names.length) return null;
  const most = Math.max(100, ...runs.flatMap((run) => names.flatMap((name) => run.fill_percent[name])));
  return [
    el('h2', null, 'How full the nodes are'),
    el(
      'ul',
      { class: 'legend' },
      runs.map((run, at) => el('li', null, line([0, 0], 1, at, 'swatch'), run.config)),
    ),
    el(
      'div',
      { class: 'curves' },
      names.map((name) =>
        el(
          'figure',
          { class: 'card' },
          el('figcaption', null, el('b', null, name), ': nodes from the fullest to the emptiest'),
          picture(runs, name, most),
        ),
      ),
    ),
    el('details', null, el('summary', null, 'The same as a table'), levels(runs, names)),
  ];
}

function picture(runs, name, most) {
  const box = svg('svg', { viewBox: '0 0 100 100', preserveAspectRatio: 'none', role: 'img' });
  const middle = (shares) => shares[Math.floor(shares.length / 2)] ?? 0;
  const medians = runs.map((run) => `${run.config} ${percent(middle(run.fill_percent[name]) / 100)}`);
  box.setAttribute('aria-label', `${name} requested of the node in the middle: ${medians.join(', ')}`);
  for (const at of [0, 50, 100]) {
    const y = 100 - (at * 100) / most;
    box.append(svg('line', { x1: 0, x2: 100, y1: y, y2: y, class: 'grid' }));
  }
  runs.forEach((run, at) => box.append(line(run.fill_percent[name], most, at)));
  return el('div', { class: 'plot' }, el('span', null, `${whole(most)} %`), box, el('span', null, '0 %'));
}

/** A line through shares in percent. As a swatch, it is a picture of its own. */
function line(shares, most, at, kind) {
  const step = 100 / Math.max(1, shares.length - 1);
  const all = shares.length === 1 ? [shares[0], shares[0]] : shares;
  const points = all.map((share, x) => `${(x * step).toFixed(2)},${(100 - (share * 100) / most).toFixed(2)}`);
  if (kind !== 'swatch') return svg('polyline', { points: points.join(' '), class: `line line-${at}` });
  const stroke = svg('line', { x1: 0, x2: 28, y1: 4, y2: 4, class: `line line-${at}` });
  return svg('svg', { viewBox: '0 0 28 8', class: 'swatch', 'aria-hidden': 'true' }, stroke);
}

/** The shares of the fullest node, of the emptiest, and of those between. */
function levels(runs, names) {
  const rows = names.flatMap((name) => runs.map((run) => ({ name, run, all: run.fill_percent[name] })));
  const at = (part) => (row) => percent((row.all[Math.round((row.all.length - 1) * part)] ?? 0) / 100);
  return table(
    'Requested shares of the nodes',
    [
      { head: 'resource', cell: (row) => row.name },
      { head: 'configuration', cell: (row) => row.run.config },
      { head: 'fullest', number: true, cell: at(0) },
      { head: 'upper quarter', number: true, cell: at(0.25) },
      { head: 'middle', number: true, cell: at(0.5) },
      { head: 'lower quarter', number: true, cell: at(0.75) },
      { head: 'emptiest', number: true, cell: at(1) },
    ],
    rows,
  );
}
