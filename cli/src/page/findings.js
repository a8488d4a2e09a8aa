// The findings of an audit by severity, and the view of a file that has them.

import { get } from './api.js';
import { answer, el, table, whole } from './dom.js';
import { share } from './share.js';

const SEVERITIES = [
  ['error', 'Errors'],
  ['warning', 'Warnings'],
  ['info', 'Information'],
];

/** Returns the nodes of an audit. */
export function findings(found) {
  const tone = found.errors ? 'bad' : found.findings.length ? '' : 'good';
  return [
    el('p', { class: `headline ${tone}` }, found.summary),
    SEVERITIES.map(([severity, title]) => {
      const all = found.findings.filter((it) => it.severity === severity);
      return (
        all.length > 0 &&
        el(
          'div',
          { class: `severity ${severity}` },
          el('h3', null, `${title}: ${whole(all.length)}`),
          table(
            title,
            [
              { head: 'object', prose: true, cell: (it) => it.object },
              { head: 'problem', prose: true, cell: (it) => it.problem },
              { head: 'remedy', prose: true, cell: (it) => it.remedy },
            ],
            all,
          ),
        )
      );
    }),
  ];
}

export default function create(root) {
  const box = el('div', { class: 'result' });
  root.append(box);
  const show = () =>
    answer(
      box,
      'Loading…',
      () => get('audit'),
      (found) => [findings(found), el('div', { class: 'tools' }, share('audit', found))],
    );
  return { show };
}
