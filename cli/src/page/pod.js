// The view of a file that explains a pod.

import { el } from './dom.js';
import { explanation } from './explain.js';
import { recorded } from './recorded.js';

export default function create(root) {
  const box = el('div');
  root.append(box);
  return { show: () => explanation(box, recorded.about.question.pod) };
}
