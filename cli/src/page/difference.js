// How the shown nodes differ from those of another reading: in words above the map, and as flags of the tiles.

import { count, el, fill, LISTED, rest, whole } from './dom.js';
import { ADDED, EMPTIER, FULLER } from './tiles.js';
import { time } from './times.js';

/**
 * Fills `box` with the difference, or hides it. Returns the flags of the nodes that differ, by their places: a node is
 * fuller if more of the resource is requested.
 */
export function differences(box, difference, resource, index) {
  box.hidden = !difference;
  const flags = new Map();
  if (!difference) {
    fill(box);
    return flags;
  }
  const { since, nodes, pods, summary, resources } = difference;
  const at = resources.findIndex((it) => it.name === resource);
  for (const { name } of nodes.added) flags.set(index.get(name), ADDED);
  const counts = { fuller: 0, emptier: 0, other: 0 };
  for (const { name, before, after } of nodes.changed) {
    const more = (after.requested[at] ?? 0) - (before.requested[at] ?? 0);
    counts[more > 0 ? 'fuller' : more < 0 ? 'emptier' : 'other']++;
    flags.set(index.get(name), more > 0 ? FULLER : more < 0 ? EMPTIER : 0);
  }
  flags.delete(undefined);
  const words = [
    [nodes.added.length, 'added'],
    [nodes.removed.length, 'removed'],
    [counts.fuller, 'fuller'],
    [counts.emptier, 'emptier'],
    [counts.other, 'changed otherwise'],
  ].filter(([number]) => number > 0);
  const kinds = ['added', 'removed', 'moved', 'changed'];
  const ofPods = kinds.map((what) => [summary.pods[what], what]).filter(([number]) => number > 0);
  const text = (list) => list.map(([number, what]) => `${whole(number)} ${what}`).join(', ') || 'no difference';
  const named = [
    ['Nodes removed', nodes.removed.map((it) => it.name), nodes.removed.length],
    ...kinds.map((what) => [`Pods ${what}`, pods[what].map((it) => line(what, it)), summary.pods[what]]),
  ].filter(([, list]) => list.length > 0);
  fill(
    box,
    el(
      'p',
      null,
      el('b', null, `Compared with ${time(since)}, generation ${whole(since.generation)}: `),
      `nodes: ${text(words)}; pods: ${text(ofPods)}.`,
    ),
    named.length > 0 &&
      el(
        'details',
        null,
        el('summary', null, 'Names'),
        named.map(([title, list, all]) => [
          el('h3', null, `${title}: ${count(all, title.startsWith('Nodes') ? 'node' : 'pod')}`),
          el('ul', null, list.slice(0, LISTED).map((it) => el('li', null, it))),
          rest(all),
        ]),
      ),
  );
  return flags;
}

/** A pod with its node, or with its nodes before and after. */
function line(what, { pod, from, to }) {
  const name = (node) => node ?? 'pending';
  return what === 'moved' ? `${pod}: ${name(from)} → ${name(to)}` : `${pod} (${name(from ?? to)})`;
}
