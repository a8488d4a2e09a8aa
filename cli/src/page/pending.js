// Pending: the pods without a node by controller and cause, and the explanation of one of them.

import { get, isAnswered, Latest } from './api.js';
import { answer, count, el, empty, fill, rest, LISTED, whole } from './dom.js';
import { explanation } from './explain.js';
import { recorded } from './recorded.js';
import { go, href, place } from './route.js';

export default function create(root) {
  const latest = new Latest();
  const status = el('p', { class: recorded ? 'headline' : 'lead', role: 'status' });
  const list = el('div', { class: 'cards' });
  const name = el('input', {
    id: 'pod',
    placeholder: 'namespace/pod or deploy/web',
    autocomplete: 'off',
    spellcheck: 'false',
    required: true,
  });
  const detail = el('section', { class: 'grow', 'aria-label': 'Explanation', tabindex: -1 });
  const back = el('a', { class: 'back' }, '← All pending pods');
  const split = el(
    'div',
    { class: 'split inbox' },
    el('div', { class: 'narrow' }, list),
    el('div', null, back, detail),
  );
  let loaded;
  let pod = null;
  root.append(
    el(
      'form',
      {
        class: 'tools',
        onsubmit: (event) => {
          event.preventDefault();
          go('pending', { pod: name.value.trim() });
        },
      },
      el('label', { for: 'pod' }, 'Explain a pod or controller'),
      name,
      el('button', { class: 'primary' }, 'Explain'),
    ),
    status,
    split,
  );
  if (recorded) root.querySelector('form').remove(); // It asks.

  async function load(isRefresh = false) {
    loaded = place();
    await answer(
      list,
      isRefresh ? null : 'Explaining the pending pods…',
      () => latest.run((signal) => get('pending', { signal })),
      (found) => {
        const fit = found.groups.reduce((sum, it) => sum + (it.fits_on > 0 ? it.pods.length : 0), 0);
        const all = `${count(found.pending, 'pod')} pending in ${count(found.groups.length, 'group')}`;
        const lead = found.pending
          ? `${all}, ${fit ? `of which ${whole(fit)} would fit alone` : 'none of which fits'}.`
          : '';
        fill(status, recorded?.about.headline ?? lead);
        const groups = [...found.groups].sort((a, b) => b.pods.length - a.pods.length);
        return [
          groups.length
            ? groups.slice(0, LISTED).map(card)
            : empty(
                'No pending pods',
                `Every pod has a node.${recorded ? '' : ' Any pod of the cluster can be explained above.'}`,
              ),
          rest(groups.length),
          groups.some((it) => !isOpen(it)) &&
            el('p', { class: 'hint' }, 'This file explains the largest groups.'),
          found.notes.map((text) => el('p', { class: 'hint' }, text)),
        ];
      },
    );
    mark();
  }

  /** Whether the first pod of a group can be explained. */
  const isOpen = ({ pods }) => isAnswered('POST', 'explain', { pod: pods[0] });

  function card(group) {
    const first = group.pods[0];
    return el(
      isOpen(group) ? 'a' : 'div',
      {
        class: 'card group',
        href: isOpen(group) && href('pending', { pod: first }),
        'data-pods': JSON.stringify(group.pods),
      },
      el('span', { class: 'count' }, whole(group.pods.length), el('span', { class: 'quiet' }, ' pods')),
      el('span', { class: 'of' }, group.of),
      group.fits_on > 0
        ? el('span', { class: 'cause good' }, `fits on ${count(group.fits_on, 'node')} now`)
        : el('span', { class: 'cause' }, causes(group.message ?? 'fits on 0 nodes now')),
    );
  }

  async function explain() {
    await explanation(detail, pod);
    // On a narrow screen the explanation replaces the list, and with it the link that had the focus.
    if (!list.offsetParent) detail.focus();
  }

  /** Marks the card of the pod that is explained. */
  function mark() {
    for (const link of list.querySelectorAll('.group')) {
      const isOpen = JSON.parse(link.dataset.pods).includes(pod);
      link.toggleAttribute('aria-current', false);
      if (isOpen) link.setAttribute('aria-current', 'true');
    }
  }

  function show(params) {
    const isNew = loaded !== place();
    if (isNew) load();
    if (isNew || params.pod !== pod) {
      pod = params.pod ?? null;
      name.value = pod ?? '';
      split.classList.toggle('open', pod !== null);
      back.href = href('pending');
      if (pod) explain();
      else
        fill(
          detail,
          el(
            'p',
            { class: 'hint' },
            'Open a group to see which nodes reject its first pod, and which changes would help.',
          ),
        );
    }
    mark();
    return isNew;
  }

  const refresh = () => Promise.all([load(true), pod && explanation(detail, pod, true)]);

  return { show, refresh };
}

/** The causes of a message of the scheduler, the most frequent first; the rest of the message is in the explanation. */
function causes(message) {
  const [, reasons] = /^0\/\d+ nodes are available: (.*?)(?:\. |\.$|$)/.exec(message) ?? [];
  if (!reasons) return message;
  const parts = reasons.split(/, (?=\d+ )/).map((part) => [parseInt(part, 10) || 0, part]);
  return parts.sort(([a], [b]) => b - a).map(([, part]) => el('span', { class: 'chip' }, part));
}
