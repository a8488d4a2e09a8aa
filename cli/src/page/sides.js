// The nodes before and after a change, side by side: changed nodes are marked, and the others dimmed.
//
// Both maps have the nodes of both clusters, so that a node has the same place in each; a node that one of them lacks is
// a dot there. A move of one map, or a node that is pointed at, is shown on the other one, too.

import { amount, announce, brief, count, el, fill, percent, table, whole } from './dom.js';
import { moves, pods } from './outcome.js';
import { entry, Stage } from './stage.js';
import { ADDED, CORDONED, EMPTIER, FULLER, REMOVED, states, TAINTED } from './tiles.js';

const SIDES = ['Before', 'After'];

/** The longest list of changed nodes. The changes of every node are listed when it is opened on a map. */
const MOST = 20;

/** Returns the maps and the table of the changed nodes, given the clusters before and after the change of an answer. */
export function sides(answer, ...clusters) {
  const resources = [...new Map(clusters.flatMap((it) => it.resources).map((it) => [it.name, it])).values()];
  const known = clusters.map((cluster) => byName(cluster, resources));
  const names = [...new Set(known.flatMap((nodes) => [...nodes.keys()]))];
  const fleets = known.map((nodes, side) =>
    names.map((name) => nodes.get(name) ?? absent(known[1 - side].get(name), resources)),
  );
  const isChanged = (name) => {
    const [before, after] = known.map((nodes) => JSON.stringify(nodes.get(name)));
    return before !== after;
  };
  const changed = new Set(names.flatMap((name, node) => (isChanged(name) ? [node] : [])));
  if (!changed.size) return null; // Such as a consolidation, which only proposes changes.
  const { leaving, arriving } = flows(answer);
  let by = 0; // The place of the resource that fills the tiles.
  let opened = -1; // The node whose changes are listed, or -1 for all.

  const stages = SIDES.map(
    (_, side) =>
      new Stage('sides-keys', {
        describe,
        open(node) {
          opened = node === opened ? -1 : node;
          for (const { map } of stages) map.opened(opened);
          tell();
          announce(`${listed()} below`);
        },
        hovered: (node) => stages[1 - side].map.point(node),
        moved: (camera) => stages[1 - side].map.follow(camera),
      }),
  );
  const captions = SIDES.map(() => el('figcaption'));
  const legend = el('ul', { class: 'legend' });
  const list = el('div');
  const choice = el(
    'select',
    { id: 'sides-by', onchange: () => color(Number(choice.value)) },
    resources.map(({ name }, at) => el('option', { value: at }, name)),
  );
  stages.forEach(({ map }, side) => map.set(fleets[side], resources, new Uint8Array(names.length)));
  color(0);
  explain();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', explain);
  return el(
    'section',
    { 'aria-label': 'Nodes before and after' },
    el('p', { class: 'tools' }, el('label', { for: choice.id }, 'Fill by'), choice),
    el(
      'div',
      { class: 'sides' },
      stages.map(({ element }, side) => el('figure', null, captions[side], element)),
    ),
    legend,
    el(
      'p',
      { id: 'sides-keys', class: 'hint' },
      'Nodes without a change are dimmed. Drag to pan, scroll to zoom; click or Enter lists the changes of a node, or ',
      'again of all. Keyboard: arrows, +, −, 0.',
    ),
    list,
  );

  /** Shows a resource. */
  function color(resource) {
    by = resource;
    stages.forEach(({ map, canvas }, side) => {
      map.flag(Uint8Array.from(fleets[side], (it, node) => states(it) | difference(node, side)));
      map.by(by);
      map.match(changed);
      const sum = (amounts) => fleets[side].reduce((all, it) => all + it[amounts][by], 0);
      const share = percent(sum('requested') / sum('allocatable'));
      const text = `${SIDES[side]}: ${count(known[side].size, 'node')}, ${share} of ${resources[by].name} requested`;
      fill(captions[side], text);
      canvas.setAttribute('aria-label', `Map, ${text}. The table below has the changed nodes.`);
    });
    tell();
  }

  /** How a node differs, as a flag on one side. */
  function difference(node, side) {
    const [before, after] = known.map((nodes) => nodes.get(names[node]));
    if (side === 0) return after ? 0 : REMOVED;
    if (!before) return ADDED;
    const more = after ? after.requested[by] - before.requested[by] : 0;
    return more > 0 ? FULLER : more < 0 ? EMPTIER : 0;
  }

  /** The same in words. */
  function words(name) {
    const [before, after] = known.map((nodes) => nodes.get(name));
    if (!before || !after) return [after ? 'added' : 'removed'];
    const taints = (more, less) =>
      more.taints.filter(
        (it) => !less.taints.includes(it) && !it.startsWith('node.kubernetes.io/unschedulable'),
      );
    return [
      before.is_cordoned !== after.is_cordoned && (after.is_cordoned ? 'cordoned' : 'uncordoned'),
      ...taints(after, before),
      ...taints(before, after).map((it) => `no longer ${it}`),
    ].filter(Boolean);
  }

  /** A value of a node on both sides: 25 % → 50 %. */
  function change(name, value) {
    const [before, after] = known.map((nodes) => (nodes.has(name) ? value(nodes.get(name)) : 'none'));
    return before === after ? before : `${before} → ${after}`;
  }

  function share(at) {
    return (it) => percent(it.requested[at] / it.allocatable[at]);
  }

  function describe(node) {
    const name = names[node];
    const [before, after] = fleets.map((nodes) => nodes[node]);
    const shares = resources.flatMap((resource, at) => {
      const whole = after.allocatable[at] || before.allocatable[at];
      return whole
        ? [[brief(resource.name), `${change(name, share(at))} of ${amount(whole, resource)}`]]
        : [];
    });
    const pairs = [
      ['leaving', leaving.get(name)],
      ['arriving', arriving.get(name)],
    ].flatMap(([what, all]) => (all ? [[what, few(all)]] : []));
    return { name, words: [before.zone, before.pool], pairs: [...shares, ...pairs], more: words(name) };
  }

  function listed() {
    return opened < 0 ? 'Changed nodes' : `Changes of ${names[opened]}`;
  }

  /** Lists the changes of the opened node, or of all. */
  function tell() {
    const of = (name) => (leaving.get(name)?.length ?? 0) + (arriving.get(name)?.length ?? 0);
    const rows = opened < 0 ? [...changed].map((node) => names[node]) : [names[opened]];
    const column = (head, found) => ({ head, prose: true, cell: (name) => pods(found.get(name) ?? []) });
    fill(
      list,
      table(
        listed(),
        [
          { head: 'node', cell: (name) => name },
          { head: 'change', prose: true, cell: (name) => words(name).join(', ') },
          { head: brief(resources[by].name), number: true, cell: (name) => change(name, share(by)) },
          { head: 'pods', number: true, cell: (name) => change(name, (it) => whole(it.pods)) },
          column('leaving pods', leaving),
          column('arriving pods', arriving),
        ],
        rows.sort((a, b) => of(b) - of(a)),
        { limit: MOST },
      ),
    );
  }

  function explain() {
    fill(
      legend,
      entry('levels', '0 to 100 % requested'),
      entry('over', 'over 100 %'),
      entry('none', 'no such node or resource'),
      entry(CORDONED, 'cordoned'),
      entry(TAINTED, 'tainted'),
      entry(ADDED, 'added'),
      entry(REMOVED, 'removed'),
      entry(FULLER, 'fuller'),
      entry(EMPTIER, 'emptier'),
    );
  }
}

/** The nodes of a cluster by name, with the amounts of these resources. */
function byName({ nodes, resources: own }, resources) {
  const order = resources.map(({ name }) => own.findIndex((it) => it.name === name));
  const sorted = (amounts) => order.map((at) => amounts[at] ?? 0);
  return new Map(
    nodes.map((it) => [
      it.name,
      { ...it, allocatable: sorted(it.allocatable), requested: sorted(it.requested) },
    ]),
  );
}

/** The place of a node that the cluster does not have. */
function absent({ name, zone, pool }, resources) {
  const none = resources.map(() => 0);
  return { name, zone, pool, is_cordoned: false, taints: [], allocatable: none, requested: none };
}

/** The pods that leave each node, and those that arrive there. */
function flows(answer) {
  const [leaving, arriving] = [new Map(), new Map()];
  const add = (map, name, text) => name && map.set(name, [...(map.get(name) ?? []), text]);
  for (const [pod, { from, to }] of moves(answer)) {
    if (from === to) continue;
    add(leaving, from, `${pod} → ${to ?? 'no node'}`);
    add(arriving, to, from ? `${pod} from ${from}` : pod);
  }
  return { leaving, arriving };
}

const few = (all) =>
  `${all.slice(0, 3).join(', ')}${all.length > 3 ? ` and ${whole(all.length - 3)} more` : ''}`;
