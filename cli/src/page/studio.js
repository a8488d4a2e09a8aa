// What-if: a question, its answer, and the sessions that keep answers.
//
// A question that is asked is in the address (`ask`), a question that is only filled in as well (`draft`).

import { get, Latest, post } from './api.js';
import { announce, answer, el, empty, failure, fill, whole } from './dom.js';
import { outcome } from './outcome.js';
import { inWords, Question } from './question.js';
import { picker } from './picker.js';
import { generation, go, note, place, session } from './route.js';
import { brief, enter, tree } from './sessions.js';
import { share } from './share.js';

/** The longest question that is only filled in and kept in the address, in characters. */
const LONGEST = 2_000;

export default function create(root) {
  const latest = new Latest();
  const form = new Question((question) => go('what-if', { ask: JSON.stringify(question) }));
  const map = picker(form, () => {
    const draft = JSON.stringify(form.value());
    note({ draft: draft.length <= LONGEST ? draft : null });
  });
  const sessions = el('div');
  const result = el('section', { class: 'grow', 'aria-label': 'Answer' });
  let shown; // The address of the answer: session and question.
  const split = el(
    'div',
    { class: 'split' },
    el('div', { class: 'narrow' }, map.element, form.element, el('h2', null, 'Sessions'), sessions),
    result,
  );
  root.append(split);

  function show(params) {
    const question = parse(params.ask);
    const filled = parse(params.draft) ?? question;
    if (filled) form.set(filled);
    map.show();
    tree(sessions);
    // On a narrow screen an answer is above the form.
    split.classList.toggle('answered', Boolean(params.ask ?? session()));
    const key = JSON.stringify([place(), params.ask]);
    if (params.ask && question) ask(question);
    else if (params.ask) refuse();
    else if (key !== shown) previous();
    shown = key;
  }

  function refuse() {
    latest.cancel();
    const detail = 'Its part ask must be a JSON object, such as {"drain": ["n1"]}.';
    fill(result, failure({ title: 'The address has no question', detail }));
  }

  async function ask(question) {
    reveal();
    const found = await answer(
      result,
      `Simulating: ${inWords(question)}…`,
      () => latest.run((signal) => post('what-if', question, { signal })),
      (found) => {
        const state = el('div');
        const keep = el(
          'button',
          { type: 'button', onclick: () => hold(question, keep, state) },
          'Keep as a session',
        );
        const start = session() ? `session ${brief(session())}` : `generation ${whole(found.generation)}`;
        const tools = [keep, share('what-if', found), state];
        return titled(inWords(question), `On ${start}.`, tools, outcome(found, question));
      },
    );
    if (!found) return;
    announce(found.headline);
    reveal();
  }

  /** Scrolls to the answer if a person asked from the form, which is longer than a narrow screen. */
  function reveal() {
    const { top } = result.getBoundingClientRect();
    if (top < 0 || top > innerHeight * 0.6) result.scrollIntoView();
  }

  /** Keeps the change as a session and opens it. */
  async function hold(question, button, state) {
    button.disabled = true;
    button.setAttribute('aria-busy', 'true');
    try {
      const start = session() ? { parent: session() } : { generation: generation() };
      const found = await post('sessions', { ...question, ...start });
      form.set({});
      enter(found.id, 'what-if');
    } catch (error) {
      button.disabled = false;
      button.removeAttribute('aria-busy');
      fill(state, failure(error));
    }
  }

  /** Without a question: the answer that made the active session. */
  function previous() {
    latest.cancel();
    const id = session();
    if (!id)
      return fill(
        result,
        empty(
          'No question yet',
          'Fill in a change and ask: which pods move, and which are left without a node?',
        ),
      );
    return answer(
      result,
      'Loading the session…',
      () => latest.run((signal) => get(`sessions/${encodeURIComponent(id)}`, { signal })),
      (found) =>
        titled(
          `Session ${brief(id)}: ${inWords(found.change)}`,
          'The answer that made this session. New questions start from its cluster.',
          share(`session-${brief(id)}`, found.answer),
          outcome(found.answer, found.change),
        ),
    );
  }

  return { show, refresh: map.refresh };
}

/** An answer below its title: the headline comes first. */
function titled(title, hint, tools, [headline, ...rest]) {
  return [
    el('h2', null, title),
    headline,
    el('p', { class: 'hint' }, hint),
    el('div', { class: 'tools' }, tools),
    rest,
  ];
}

/** The question of an address, or null if it is not one. */
function parse(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === 'object' && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}
