// The view of a file that answers a what-if question.

import { post } from './api.js';
import { outcome } from './outcome.js';
import { recorded } from './recorded.js';
import { view } from './share.js';

export default function create(root) {
  const { question } = recorded.about;
  return view(
    root,
    'what-if',
    () => post('what-if', question),
    (found) => outcome(found, question),
  );
}
