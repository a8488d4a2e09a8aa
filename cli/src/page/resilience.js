// Resilience: each zone or node failed in turn, an upgrade of each pool, and the findings of the audit.

import { get, Latest, post } from './api.js';
import { announce, answer, count, el, empty, fill, refill, whole } from './dom.js';
import { findings as listed } from './findings.js';
import { failures } from './outcome.js';
import pools from './pools.js';
import { place } from './route.js';

/** The longest list of failures: the worst ones are what an operator acts on. */
const WORST = 10;

/** Milliseconds between pictures of the failures that have ended: longer than until the loading text. */
const EVERY = 400;

export default function create(root) {
  const latest = new Latest();
  const auditing = new Latest();
  const upgrades = pools();
  const force = el('input', { type: 'checkbox', id: 'accept-loss' });
  const result = el('div', { class: 'result' });
  const findings = el('div', { class: 'result', tabindex: -1 });
  const again = el(
    'button',
    {
      type: 'button',
      onclick: () => {
        audit();
        findings.focus({ preventScroll: true }); // The button is hidden now.
      },
    },
    'Audit again',
  );
  const newer = el(
    'div',
    { class: 'tools', role: 'status', hidden: true },
    'The cluster was read again after this audit.',
    again,
  );
  let audited = null; // The generation of the findings.
  let newest = null; // The generation of a reading after this audit began.
  const stop = el('button', { type: 'button', hidden: true, onclick: () => latest.cancel() }, 'Cancel');
  const buttons = [
    ['zone', 'Fail each zone'],
    ['node', 'Fail each node'],
  ].map(([domain, text]) =>
    el('button', { type: 'button', class: 'primary', onclick: () => run(domain) }, text),
  );
  let loaded;
  const idle = () =>
    fill(
      result,
      empty(
        'Nothing failed yet',
        'Let each zone or node fail in turn, to see the ten failures that harm most pods.',
      ),
    );
  root.append(
    el(
      'section',
      { 'aria-labelledby': 'failures-title' },
      el('h2', { id: 'failures-title' }, 'Failures'),
      el(
        'div',
        { class: 'tools' },
        buttons,
        stop,
        el('label', { class: 'check' }, force, 'Accept the loss of pods without a controller'),
      ),
      result,
    ),
    upgrades.element,
    el(
      'section',
      { 'aria-labelledby': 'audit-title' },
      el('h2', { id: 'audit-title' }, 'Audit'),
      newer,
      findings,
    ),
  );

  async function run(domain) {
    stop.hidden = false;
    buttons.forEach((button) => {
      button.disabled = true;
    });
    const question = { each: domain, ...(force.checked && { force: true }) };
    const began = performance.now();
    const worst = (each) =>
      failures(each, `The ${domain}s whose failure harms most pods`, {
        limit: WORST,
        isLossAccepted: question.force,
      });
    const ask = (signal) => {
      const ended = [];
      let drawn = performance.now();
      const online = ({ failure, of }) => {
        ended.push(failure);
        if (signal.aborted || performance.now() - drawn < EVERY) return;
        drawn = performance.now();
        refill(
          result,
          el('p', { class: 'headline' }, `${whole(ended.length)} of ${count(of, domain)} failed…`),
          worst({ failures: ended, nodes_without_zone: 0 }),
        );
      };
      return post('what-if', question, { signal, online });
    };
    const found = await answer(
      result,
      `Each ${domain} fails in turn…`,
      () => latest.run(ask),
      (found) => [
        el('p', { class: `headline ${found.ok ? 'good' : 'bad'}` }, found.headline),
        found.each && worst(found.each),
        el(
          'p',
          { class: 'hint' },
          `${count(found.each?.failures.length ?? 0, domain)} on generation ${whole(found.generation)}, `,
          `in ${((performance.now() - began) / 1000).toFixed(1)} s`,
        ),
      ],
    );
    stop.hidden = true;
    buttons.forEach((button) => {
      button.disabled = false;
    });
    if (found) announce(found.headline);
    else if (!result.querySelector('.error')) idle();
  }

  function audit() {
    [audited, newest] = [null, null];
    offer();
    answer(
      findings,
      'Auditing the cluster…',
      () => auditing.run((signal) => get('audit', { signal }).catch(refused)),
      (found) => {
        audited = found.generation ?? null;
        offer();
        if (found.refused) return el('p', { class: 'hint' }, found.refused);
        return listed(found);
      },
    );
  }

  /** Offers another audit: one of a large cluster takes seconds, and moves the findings that a person reads. */
  function offer() {
    newer.hidden = place() !== null || audited === null || newest === null || audited === newest;
  }

  function refresh(generation) {
    newest = generation;
    offer();
  }

  return {
    show() {
      if (loaded === place()) return false;
      loaded = place();
      latest.cancel();
      idle();
      upgrades.reset();
      audit();
      return true;
    },
    refresh,
  };
}

/** A session or an older reading has no objects to be audited: the reason is an answer, not a failure. */
function refused(problem) {
  if (place() !== null && problem.status === 422) return { refused: sentence(problem.detail ?? problem.title) };
  throw problem;
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
