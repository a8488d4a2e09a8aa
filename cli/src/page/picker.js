// The nodes of a question, chosen on a map. The fields of the form have their names, which can be typed as well.

import { get, Latest } from './api.js';
import { announce, answer, count, el, empty } from './dom.js';
import { place } from './route.js';
import { SELECTING, shares, Stage } from './stage.js';

/** Returns the map as a part that can be opened. `changed()` is called when it has written into the form. */
export function picker(form, changed) {
  const latest = new Latest();
  let fleet = { nodes: [], resources: [] };
  let loaded; // The place whose nodes are shown.
  let index = new Map(); // The place of a node by its name.
  let selected = new Set();
  const field = el(
    'select',
    { id: 'pick-for', onchange: () => adopt() },
    el('option', { value: 'drain' }, 'drain'),
    el('option', { value: 'fail_node' }, 'fail'),
  );
  const state = el('div');
  const chosen = el('span', { class: 'found' });
  const stage = new Stage('pick-keys', {
    describe: (node) => {
      const { name, zone, pool, ...it } = fleet.nodes[node];
      const more = [zone, pool, selected.has(node) && 'selected'].filter(Boolean);
      return { name, words: [], pairs: shares(it, fleet.resources), more };
    },
    open: (node) => select([node], true),
    select,
  });
  stage.choose(true);
  const body = el(
    'div',
    { hidden: true },
    el(
      'div',
      { class: 'tools' },
      el('label', { for: field.id }, 'Nodes to'),
      field,
      el('button', { type: 'button', class: 'plain', onclick: () => write(new Set()) }, 'None'),
      chosen,
    ),
    stage.element,
    el('p', { id: 'pick-keys', class: 'hint' }, `${SELECTING} The fields below take names and labels.`),
  );
  const element = el(
    'details',
    { class: 'picker', ontoggle: () => show() },
    el('summary', null, 'Choose nodes on a map'),
    state,
    body,
  );
  form.element.addEventListener('input', () => adopt());

  /** Loads the nodes of the place that is shown, if the map is open and has others. */
  function show() {
    if (element.open && loaded !== place()) load();
    else adopt();
  }

  function load() {
    loaded = place();
    return answer(
      state,
      fleet.nodes.length ? null : 'Loading the nodes…',
      () => latest.run((signal) => get('nodes', { signal })),
      (found) => {
        fleet = found;
        index = new Map(fleet.nodes.map(({ name }, at) => [name, at]));
        body.hidden = !fleet.nodes.length;
        stage.map.set(fleet.nodes, fleet.resources, new Uint8Array(fleet.nodes.length));
        stage.map.by(0);
        stage.canvas.setAttribute('aria-label', `Map of ${count(fleet.nodes.length, 'node')} to choose from`);
        adopt();
        return body.hidden && empty('No nodes', 'The cluster has no nodes.');
      },
    );
  }

  /** Shows the nodes that the field names. */
  function adopt() {
    const named = form.list(field.value).map((name) => index.get(name));
    selected = new Set(named.filter((at) => at !== undefined));
    stage.map.select(selected);
    chosen.textContent = count(selected.size, 'node');
  }

  function select(nodes, isToggle = false) {
    const next = new Set(selected);
    for (const node of nodes) if (!(isToggle && next.delete(node))) next.add(node);
    write(next);
  }

  /** Writes the names into the field, after its labels and other texts. */
  function write(next) {
    const others = form.list(field.value).filter((it) => !index.has(it));
    form.put(field.value, [...others, ...[...next].map((node) => fleet.nodes[node].name)]);
    adopt();
    announce(`${count(selected.size, 'node')} selected`);
    changed();
  }

  return { element, show, refresh: () => element.open && load() };
}
