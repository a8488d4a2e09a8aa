// The form of a what-if question: the options of `portolan what-if`, by the names of the API.

import { el } from './dom.js';

const list = (key, label, placeholder) => ({ key, label, placeholder, kind: 'list' });
const text = (key, label, placeholder) => ({ key, label, placeholder, kind: 'text' });
const check = (key, label) => ({ key, label, kind: 'check' });

const PARTS = [
  {
    legend: 'Nodes',
    fields: [
      list('drain', 'Drain nodes', 'n1 n2'),
      text('selector', 'Drain by label', 'pool=a'),
      list('fail_node', 'Fail nodes', 'n1 or pool=a'),
      list('fail_zone', 'Fail zones', 'eu-west-1a'),
      list('add', 'Add copies of nodes', '3xn1'),
    ],
  },
  {
    legend: 'Controllers and pods',
    fields: [
      list('scale', 'Scale', 'deployment/web=5'),
      list('remove', 'Remove', 'deployment/web'),
      text('namespace', 'Namespace of these', 'only if ambiguous'),
    ],
  },
  {
    legend: 'Upgrade',
    fields: [
      text('upgrade', 'Upgrade nodes by label', 'pool=a, or all'),
      text('max_surge', 'New nodes per step', '1'),
      text('max_unavailable', 'In place per step', '0'),
    ],
  },
  {
    legend: 'Options',
    fields: [
      {
        key: 'each',
        label: 'Fail in turn',
        kind: 'choice',
        choices: [
          ['', 'nothing'],
          ['zone', 'each zone'],
          ['node', 'each node'],
        ],
      },
      check('consolidate', 'Consolidate: find nodes that can be removed'),
      check('force', 'Accept the loss of pods without a controller'),
      check('delete_emptydir_data', 'Accept the loss of local data'),
    ],
  },
];

/** The form. `onask(question)` is called when it is submitted. */
export class Question {
  #inputs = new Map();

  constructor(onask) {
    this.element = el(
      'form',
      {
        class: 'question',
        onsubmit: (event) => {
          event.preventDefault();
          onask(this.value());
        },
      },
      PARTS.map(({ legend, fields }) =>
        el(
          'fieldset',
          null,
          el('legend', null, legend),
          fields.map((field) => this.#field(field)),
        ),
      ),
      el(
        'div',
        { class: 'tools' },
        el('button', { class: 'primary' }, 'Ask'),
        el('button', { type: 'button', class: 'plain', onclick: () => this.set({}) }, 'Clear'),
      ),
    );
  }

  /** The body of the API with the fields that are set. */
  value() {
    const question = {};
    for (const { key, kind } of PARTS.flatMap(({ fields }) => fields)) {
      const input = this.#inputs.get(key);
      if (kind === 'check' && input.checked) question[key] = true;
      else if (kind === 'list' && input.value.trim()) question[key] = split(input.value);
      else if (kind !== 'check' && kind !== 'list' && input.value.trim()) question[key] = input.value.trim();
    }
    // These two only qualify other fields.
    if (!question.upgrade) {
      delete question.max_surge;
      delete question.max_unavailable;
    }
    if (!question.scale && !question.remove) delete question.namespace;
    return question;
  }

  set(question) {
    for (const { key, kind } of PARTS.flatMap(({ fields }) => fields)) {
      const input = this.#inputs.get(key);
      if (kind === 'check') input.checked = question[key] === true;
      else input.value = [question[key] ?? []].flat().join(' '); // The API takes a text for a list of one.
    }
  }

  /** The entries of a list. */
  list(key) {
    return split(this.#inputs.get(key).value);
  }

  put(key, entries) {
    this.#inputs.get(key).value = entries.join(' ');
  }

  #field({ key, label, placeholder, kind, choices }) {
    const id = `ask-${key}`;
    const common = { id, name: key, autocomplete: 'off', spellcheck: 'false' };
    const input =
      kind === 'choice'
        ? el(
            'select',
            { id, name: key },
            choices.map(([value, text]) => el('option', { value }, text)),
          )
        : el('input', kind === 'check' ? { id, name: key, type: 'checkbox' } : { ...common, placeholder });
    this.#inputs.set(key, input);
    return kind === 'check'
      ? el('label', { class: 'check' }, input, label)
      : el('div', { class: 'field' }, el('label', { for: id }, label), input);
  }
}

/**
 * The entries of a list: split at blanks and semicolons, except in a selector such as `pool in (a, b)` or
 * `pool notin (a)`.
 */
export function split(text) {
  return text.match(/(?:[^\s;(]|\([^)]*\)?|\s+(?:not)?in\s*(?=\())+/g) ?? [];
}

const VERBS = {
  drain: 'drain',
  selector: 'drain',
  fail_node: 'fail',
  fail_zone: 'fail zone',
  add: 'add',
  scale: 'scale',
  remove: 'remove',
  upgrade: 'upgrade',
  each: 'fail each',
  consolidate: 'consolidate',
};

/** The question in words: drain n1, n2 and 3 more; scale deployment/web=5. */
export function inWords(question) {
  const parts = Object.keys(VERBS)
    .filter((key) => question[key] && question[key].length !== 0)
    .map((key) => {
      const value = [question[key]].flat();
      if (value[0] === true) return VERBS[key];
      const named = value.slice(0, 3).join(', ');
      return `${VERBS[key]} ${named}${value.length > 3 ? ` and ${value.length - 3} more` : ''}`;
    });
  return parts.join('; ') || 'no change';
}
