// Fleet: a tile a node, by zone and pool; search, selection, stranded capacity and headroom.

import { get, Latest } from './api.js';
import { differences } from './difference.js';
import {
  amount,
  announce,
  brief,
  count,
  el,
  empty,
  failure,
  fill,
  loading,
  percent,
  refill,
  table,
  whole,
} from './dom.js';
import { headroom } from './headroom.js';
import { panel } from './node.js';
import { go, note, place, route } from './route.js';
import { entry, LINKED, SELECTING, shares, Stage } from './stage.js';
import { FREE, FULL, strand } from './stranded.js';
import { ADDED, CORDONED, EMPTIER, FULLER, states, STRANDED, TAINTED } from './tiles.js';

export default function create(root, times) {
  const latest = new Latest();
  const latestDifference = new Latest();
  let fleet = null;
  let loaded; // The place whose nodes are shown.
  let difference = null; // From the reading that the shown one is compared with.
  let names = []; // Of the nodes, in their order.
  let index = new Map(); // The place of a node by its name.
  let selected = new Set();
  let matches = null;
  let params = {};

  const by = el('select', {
    id: 'by',
    onchange: () => {
      note({ by: by.value });
      color();
    },
  });
  const search = el('input', {
    id: 'search',
    type: 'search',
    autocomplete: 'off',
    spellcheck: 'false',
    placeholder: 'name, zone, pool or taint',
    oninput: () => {
      note({ q: search.value });
      find();
      // A refresh must not move the map under the eyes of a person.
      if (matches?.size === 1) map.reveal([...matches][0]);
    },
  });
  const found = el('span', { class: 'found', role: 'status' });
  const pick = el(
    'button',
    { type: 'button', hidden: true, onclick: () => select([...matches]) },
    'Select these',
  );
  const asTable = el('input', {
    type: 'checkbox',
    id: 'as-table',
    onchange: () => {
      note({ table: asTable.checked ? '1' : null });
      arrange();
    },
  });
  const stranded = el('p', { class: 'stranded', id: 'stranded' });
  const compared = el('div', { class: 'compared', role: 'status', hidden: true });
  const side = el('aside', { class: 'panel', 'aria-label': 'Node', tabindex: -1, hidden: true });
  const list = el('div', { hidden: true });
  const chosen = el('div', { class: 'chosen', hidden: true, role: 'group', 'aria-label': 'Selection' });
  const legend = el('ul', { class: 'legend' });
  const use = `Drag to pan, scroll to zoom, click or Enter to open. ${SELECTING} Find nodes selects by text.`;
  const keys = el('p', { id: 'keys', class: 'hint' }, use);
  const state = el('div');
  const { map, canvas, ...stage } = new Stage('keys', {
    describe,
    open: (node) => open(fleet.nodes[node].name),
    select,
  });
  const body = el(
    'div',
    { hidden: true },
    el(
      'div',
      { class: 'tools' },
      el('span', { class: 'pair' }, el('label', { for: 'by' }, 'Fill by'), by),
      el('span', { class: 'pair' }, el('label', { for: 'search' }, 'Find nodes'), search),
      found,
      pick,
      el('label', { class: 'check' }, asTable, 'Table'),
    ),
    stranded,
    compared,
    el(
      'div',
      { class: 'split' },
      el(
        'div',
        { class: 'grow' },
        stage.element,
        list,
        chosen,
        legend,
        keys,
      ),
      side,
    ),
    headroom(),
  );
  root.append(state, body);
  side.addEventListener('keydown', ({ key }) => key === 'Escape' && close());
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => fleet && explain());

  async function load() {
    loaded = place();
    if (!fleet) fill(state, loading('Loading the nodes…'));
    try {
      const [next, found] =
        (await latest.run(async (signal) => Promise.all([get('nodes', { signal }), differ()]))) ?? [];
      if (!next) return;
      difference = found;
      fleet = next;
      fill(state, fleet.nodes.length === 0 && empty('No nodes', 'The cluster has no nodes.'));
      body.hidden = fleet.nodes.length === 0;
      arrive();
    } catch (error) {
      body.hidden = true;
      fleet = null;
      fill(state, failure(error, load));
    }
  }

  function arrive() {
    const { nodes, resources } = fleet;
    // The selection outlives a change of the cluster by the names of its nodes.
    const kept = [...selected].map((node) => names[node]);
    index = new Map(nodes.map(({ name }, at) => [name, at]));
    names = nodes.map(({ name }) => name);
    const value = by.value || params.by;
    fill(
      by,
      [...resources]
        .sort((a, b) => (a.name === 'pods') - (b.name === 'pods'))
        .map((it) => el('option', { value: it.name }, it.name)),
    );
    by.value = resources.some((it) => it.name === value) ? value : resources[0]?.name;
    const waste = strand(fleet);
    fleet.flags = Uint8Array.from(nodes, (it, at) => states(it) | (waste.nodes.has(at) ? STRANDED : 0));
    map.set(nodes, resources, fleet.flags);
    fleet.states = fleet.flags;
    selected = new Set(kept.map((name) => index.get(name)).filter((at) => at !== undefined));
    map.select(selected);
    fill(
      stranded,
      waste.nodes.size
        ? [
            el('b', null, `Stranded on ${count(waste.nodes.size, 'node')}: `),
            waste.sums.map((it) => amount(it.free, it)).join(', '),
            el(
              'small',
              null,
              ` One resource is at least ${FULL * 100} % requested, and another at most ${FREE * 100} %: `,
              'its free amount can hardly be used.',
            ),
          ]
        : el('small', null, 'No stranded capacity: no node has one resource full and another mostly free.'),
    );
    explain();
    color();
    find();
    choose();
  }

  /** The difference from the reading that the shown one is compared with, or null. */
  async function differ() {
    const pair = await times?.compared();
    if (!pair) return null;
    const path = `diff?from=${pair.from.generation}&to=${pair.to.generation}`;
    const found = await latestDifference
      .run((signal) => get(path, { signal }))
      .catch(async (problem) => {
        if (problem.status !== 404) throw problem;
        await times.load(); // The server has dropped a reading, and the next refresh compares with another.
        return null;
      });
    return found ? { ...found, since: pair.from } : null;
  }

  /** Shows how the nodes differ. */
  function mark() {
    const changes = differences(compared, difference, by.value, index);
    fleet.flags = fleet.states.map((flags, at) => flags | (changes.get(at) ?? 0));
    fleet.changed = difference && new Set(changes.keys());
    map.flag(fleet.flags);
    map.match(matches ?? fleet.changed);
  }

  /** The place of the resource that fills the tiles. */
  function resourceAt() {
    return Math.max(
      0,
      fleet.resources.findIndex((it) => it.name === by.value),
    );
  }

  function color() {
    map.by(resourceAt());
    mark();
    canvas.setAttribute(
      'aria-label',
      `Map of ${count(fleet.nodes.length, 'node')}, filled by ${by.value}. Tick Table for the same as a table.`,
    );
    arrange();
  }

  function explain() {
    fill(
      legend,
      entry('levels', '0 to 100 % requested'),
      entry('over', 'over 100 %'),
      entry('none', 'without the resource'),
      entry(STRANDED, 'stranded'),
      entry(CORDONED, 'cordoned'),
      entry(TAINTED, 'tainted'),
      difference && [entry(ADDED, 'added'), entry(FULLER, 'fuller'), entry(EMPTIER, 'emptier')],
    );
  }

  /** Highlights the nodes that match the search. */
  function find() {
    const text = search.value.trim().toLowerCase();
    const fields = ({ name, zone, pool, taints }) => [name, zone, pool, ...taints];
    const isMatch = (it) => fields(it).some((field) => field?.toLowerCase().includes(text));
    matches = text ? new Set(fleet.nodes.flatMap((it, at) => (isMatch(it) ? [at] : []))) : null;
    map.match(matches ?? fleet.changed);
    found.textContent = matches ? `${whole(matches.size)} of ${count(fleet.nodes.length, 'node')}` : '';
    pick.hidden = !matches?.size;
    arrange();
  }

  /** Shows the table or the map. The table is built only if it is shown. */
  function arrange() {
    stage.element.hidden = legend.hidden = keys.hidden = asTable.checked;
    list.hidden = !asTable.checked;
    if (!asTable.checked || !fleet) return;
    const resource = resourceAt();
    const share = (it) =>
      it.allocatable[resource] > 0 ? it.requested[resource] / it.allocatable[resource] : -1;
    const rows = fleet.nodes
      .filter((_, at) => !matches || matches.has(at))
      .sort((a, b) => share(b) - share(a));
    refill(
      list,
      table(
        `Nodes, the fullest by ${by.value} first`,
        [
          {
            head: el('span', { class: 'quiet' }, 'Select'),
            cell: (it) =>
              el('input', {
                type: 'checkbox',
                'aria-label': `Select ${it.name}`,
                checked: selected.has(index.get(it.name)),
                onchange: () => select([index.get(it.name)], true),
              }),
          },
          {
            head: 'node',
            cell: (it) =>
              el('button', { type: 'button', class: 'link', onclick: () => open(it.name) }, it.name),
          },
          { head: 'zone', cell: (it) => it.zone },
          { head: 'pool', cell: (it) => it.pool },
          { head: 'pods', number: true, cell: (it) => whole(it.pods) },
          ...fleet.resources
            .map((resource, at) => ({ resource, at }))
            .filter(({ resource }) => resource.name !== 'pods')
            .map(({ resource, at }) => ({
              head: brief(resource.name),
              number: true,
              cell: (it) => (it.allocatable[at] > 0 ? percent(it.requested[at] / it.allocatable[at]) : ''),
            })),
          { head: 'state', cell: (it) => words(it, fleet.flags[index.get(it.name)]).join(', ') },
        ],
        rows,
      ),
    );
  }

  function words(node, flags) {
    const changes = [flags & ADDED && 'added', flags & FULLER && 'fuller', flags & EMPTIER && 'emptier'];
    const states = [flags & STRANDED && 'stranded', node.is_cordoned && 'cordoned'];
    return [...changes, ...states, ...node.taints].filter(Boolean);
  }

  function describe(node) {
    const it = fleet.nodes[node];
    const more = words(it, fleet.flags[node]);
    if (selected.has(node)) more.push('selected');
    return { name: it.name, words: [it.zone, it.pool], pairs: shares(it, fleet.resources), more };
  }

  /** Opens the panel of a node. The focus moves to it, and back to the map when it is closed. */
  function open(name) {
    go('fleet', { ...route().params, node: name });
    side.hidden = false;
    side.focus({ preventScroll: true });
  }

  function close() {
    go('fleet', { ...route().params, node: null });
    (asTable.checked ? asTable : canvas).focus({ preventScroll: true });
  }

  /** Adds nodes to the selection; with `isToggle`, removes those that are in it. */
  function select(nodes, isToggle = false) {
    for (const node of nodes) {
      if (isToggle && selected.has(node)) selected.delete(node);
      else selected.add(node);
    }
    map.select(selected);
    choose();
    announce(`${count(selected.size, 'node')} selected`);
  }

  /** Shows the selection, and what can be asked about it. */
  function choose() {
    const chosenNames = [...selected].map((node) => names[node]);
    // The nodes may arrive after a switch to another view, whose address has no selection.
    if (route().view === 'fleet')
      note({ select: chosenNames.length <= LINKED ? chosenNames.join(',') : null });
    chosen.hidden = !chosenNames.length;
    const hand = (field, text) =>
      el(
        'button',
        { type: 'button', onclick: () => go('what-if', { draft: JSON.stringify({ [field]: chosenNames }) }) },
        text,
      );
    const clear = () => {
      selected.clear();
      map.select(selected);
      choose();
      arrange();
    };
    refill(
      chosen,
      el('b', null, `${count(chosenNames.length, 'node')} selected`),
      hand('drain', 'Drain…'),
      hand('fail_node', 'Fail…'),
      el('button', { type: 'button', class: 'plain', onclick: clear }, 'Clear'),
    );
  }

  function show(next) {
    const before = params;
    params = next;
    search.value = next.q ?? '';
    asTable.checked = next.table === '1';
    const follow = () => {
      if (!fleet) return;
      if (before.select === undefined && next.select && !selected.size) {
        select(
          next.select
            .split(',')
            .map((name) => index.get(name))
            .filter((at) => at !== undefined),
        );
      }
      const node = index.get(next.node) ?? -1;
      map.opened(node);
      side.hidden = !next.node;
      if (next.node) {
        // On a narrow screen the panel is below the map.
        const isBelow = () => side.getBoundingClientRect().top > innerHeight * 0.6;
        const isOther = before.node !== next.node;
        panel(side, next.node, close).then(() => isOther && isBelow() && side.scrollIntoView());
        if (node >= 0) map.reveal(node);
      }
    };
    const isOther = before.with !== next.with;
    const isNew = !fleet || loaded !== place() || isOther;
    if (isNew) load().then(follow);
    else {
      find();
      follow();
    }
    return isNew;
  }

  async function refresh() {
    await load();
    if (fleet && params.node) await panel(side, params.node, close, true);
  }

  return { show, refresh };
}
