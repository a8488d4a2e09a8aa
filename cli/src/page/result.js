// The view of a file that answers a what-if question, with the nodes before and after the change.

import { get, post } from './api.js';
import { outcome } from './outcome.js';
import { recorded } from './recorded.js';
import { view } from './share.js';
import { sides } from './sides.js';

export default function create(root) {
  const { question } = recorded.about;
  let clusters;
  const ask = async () => {
    clusters = await Promise.all([get('nodes/before'), get('nodes/after')]);
    return post('what-if', question);
  };
  return view(root, 'what-if', ask, (found) => outcome(found, question, sides(found, ...clusters)));
}
