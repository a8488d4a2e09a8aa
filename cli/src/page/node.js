// The panel of a node: its resources, labels and pods.

import { get, Latest } from './api.js';
import { amount, answer, bar, brief, count, el, percent, short, table, whole } from './dom.js';
import { go, href } from './route.js';

const latest = new Latest();

/** Shows the node in `box`, or refreshes it there. */
export function panel(box, name, close, isRefresh = false) {
  return answer(
    box,
    isRefresh ? null : `Loading ${name}…`,
    () => latest.run((signal) => get(`nodes/${encodeURIComponent(name)}`, { signal })),
    (node) => {
      const rows = node.resources.map((it, at) => ({ it, at })).filter(({ at }) => node.allocatable[at] > 0);
      const labels = Object.entries(node.labels);
      return [
        el(
          'div',
          { class: 'title' },
          el('h2', null, node.name),
          el(
            'button',
            { type: 'button', class: 'square', 'aria-label': 'Close', title: 'Close', onclick: close },
            '×',
          ),
        ),
        el('p', null, [node.zone ?? 'no zone', node.pool ?? 'no pool', count(node.pods, 'pod')].join(' · ')),
        node.is_cordoned && el('p', { class: 'tag' }, 'cordoned'),
        ...node.taints.map((taint) => el('p', { class: 'tag' }, taint)),
        el(
          'dl',
          { class: 'gauges' },
          rows.map(({ it, at }) => {
            const share = node.requested[at] / node.allocatable[at];
            const free = Math.max(0, node.allocatable[at] - node.requested[at]);
            return el(
              'div',
              null,
              el('dt', null, brief(it.name)),
              el(
                'dd',
                null,
                bar(share, share > 1 ? 'over' : ''),
                el('b', null, percent(share)),
                ` of ${amount(node.allocatable[at], it)}`,
                el('small', null, `${amount(free, it)} free`),
              ),
            );
          }),
        ),
        el(
          'div',
          { class: 'tools' },
          asks('Drain…', { drain: [node.name] }),
          asks('Fail…', { fail_node: [node.name] }),
          asks('Add a copy…', { add: [`1x${node.name}`] }),
        ),
        node.list.length === 0
          ? el('p', null, 'No pods.')
          : table(
              'Pods of the node',
              [
                { head: 'pod', cell: (it) => [link(it.pod), details(it)] },
                node.list.some((it) => it.priority) && {
                  head: 'priority',
                  number: true,
                  cell: (it) => whole(it.priority),
                },
                ...rows
                  .filter(({ it }) => it.name !== 'pods')
                  .map(({ it, at }) => ({
                    head: it.unit ? `${brief(it.name)}, ${it.unit}` : brief(it.name),
                    number: true,
                    cell: (pod) => short(pod.requested[at]),
                  })),
              ].filter(Boolean),
              node.list,
            ),
        el(
          'details',
          null,
          el('summary', null, count(labels.length, 'label')),
          el(
            'ul',
            { class: 'labels' },
            labels.map(([key, value]) => el('li', null, el('code', null, `${key}=${value}`))),
          ),
        ),
      ];
    },
  );
}

/** The button that opens the form with a question. */
function asks(text, draft) {
  const onclick = () => go('what-if', { draft: JSON.stringify(draft) });
  return el('button', { type: 'button', onclick }, text);
}

function link(pod) {
  return el('a', { href: href('pending', { pod }) }, pod);
}

/** The pod's controller and state, below its name. */
function details({ of, is_terminating: isTerminating, is_assumed: isAssumed }) {
  const parts = [of, isTerminating && 'terminating', isAssumed && 'assumed'].filter(Boolean);
  return parts.length > 0 && el('small', { class: 'below' }, parts.join(', '));
}
