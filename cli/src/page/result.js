// The view of a file that answers a what-if question.

import { post } from './api.js';
import { answer, el } from './dom.js';
import { outcome } from './outcome.js';
import { recorded } from './recorded.js';
import { share } from './share.js';

export default function create(root) {
  const box = el('div');
  root.append(box);
  const { question } = recorded.about;
  const show = () =>
    answer(
      box,
      'Loading…',
      () => post('what-if', question),
      (found) => [outcome(found, question), el('div', { class: 'tools' }, share('what-if', found))],
    );
  return { show };
}
