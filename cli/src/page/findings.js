// The findings of an audit by severity, and the view of a file that has them.

import { get } from './api.js';
import { el, table, whole } from './dom.js';
import { view } from './share.js';

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
          table(
            `${title}: ${whole(all.length)}`,
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
  return view(root, 'audit', () => get('audit'), findings);
}
