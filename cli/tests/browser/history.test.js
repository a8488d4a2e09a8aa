// The time slider: older readings, links to them, and differences between readings.

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { NARROW, until, visit } from './browser.js';
import { node, pod } from './clusters.js';
import { ask, folder, serve, serveFile } from './server.js';

const cluster = (nodes, pods) => [
  ...Array.from({ length: nodes }, (_, at) => node(`n${at}`, { zone: `z${at % 2}` })),
  ...Array.from({ length: pods }, (_, at) => pod(`p${at}`, `n${at % nodes}`)),
];
const waiting = (name) => pod(name, undefined, { nodeSelector: { disk: 'fast' } });

/** Writes each cluster, and waits until it was read. Returns the address. */
async function readings(...clusters) {
  const [first, ...others] = clusters;
  const { address, write } = await serveFile(first);
  for (const [at, objects] of others.entries()) {
    await write(objects);
    await until(
      () => ask(address, 'summary'),
      ({ generation }) => generation === at + 2,
      'the file is read again',
    );
  }
  return { address, write };
}

test('the arrow keys show older readings, and the link names them', async () => {
  const { address, write } = await readings(cluster(2, 2), cluster(3, 2), cluster(4, 2));
  await visit(address, '', {}, async (page, check) => {
    const slider = page.getByRole('slider', { name: 'Time' });
    await page.getByRole('application', { name: /Map of 4 nodes/ }).waitFor();
    await slider.waitFor();
    assert.match(await slider.getAttribute('aria-valuetext'), /^now, .*, generation 3: 4 nodes, 2 pods/);
    await slider.focus();
    await page.keyboard.press('ArrowLeft');
    await page.getByRole('application', { name: /Map of 3 nodes/ }).waitFor();
    await page.locator('#summary').getByText('3', { exact: true }).waitFor();
    await page.keyboard.press('ArrowLeft');
    await page.getByRole('application', { name: /Map of 2 nodes/ }).waitFor();
    assert.match(page.url(), /#\/fleet\?generation=1$/);
    await page.getByRole('status').getByText(/, generation 1$/).waitFor();
    await check('history');
    // It does not follow, but the slider has the newer reading.
    await write(cluster(5, 2));
    await until(() => slider.getAttribute('max'), (max) => max === '3', 'the slider has four readings');
    await page.getByRole('application', { name: /Map of 2 nodes/ }).waitFor();
    await page.getByRole('button', { name: 'Now' }).click();
    await page.getByRole('application', { name: /Map of 5 nodes/ }).waitFor();
    assert.doesNotMatch(page.url(), /generation/);
    // At "now" it follows.
    await write(cluster(6, 2));
    await page.getByRole('application', { name: /Map of 6 nodes/ }).waitFor();
    await until(() => slider.inputValue(), (value) => value === '4', 'the slider follows');
  });
});

test('a link to a reading shows its nodes, pods and pending pods', async () => {
  const { address } = await readings(
    [...cluster(2, 2), waiting('early')],
    [...cluster(2, 3), waiting('late')],
  );
  await visit(address, '#/pending?generation=1', {}, async (page, check) => {
    await page.getByText('1 pod pending in 1 group').waitFor();
    await page.getByRole('link', { name: /early|without a controller/ }).first().click();
    await page.getByRole('region', { name: 'Explanation' }).getByText('default/early').first().waitFor();
    assert.match(page.url(), /generation=1/);
    await check('history-pending');
    await page.getByRole('link', { name: 'Fleet' }).click();
    await page.locator('#summary').getByText('3', { exact: true }).waitFor();
    await page.getByRole('slider', { name: 'Time' }).focus();
    await page.keyboard.press('End');
    await page.locator('#summary').getByText('4', { exact: true }).waitFor();
  });
});

test('the differences from another reading are marks, words and names', async () => {
  const { address } = await readings(cluster(4, 4), [
    ...cluster(3, 0),
    pod('p0', 'n0'),
    pod('p2', 'n1'),
    pod('p1', 'n1'),
    node('fresh', { zone: 'z1' }),
    waiting('fresh'),
  ]);
  await visit(address, '#/fleet?with=first', {}, async (page, check) => {
    const region = page.locator('.compared');
    await region.getByText('nodes: 1 added, 1 removed, 1 fuller, 1 emptier;').waitFor();
    await region.getByText('pods: 1 added, 1 removed, 1 moved.').waitFor();
    await region.getByText('Names').click();
    await region.getByText('default/p2: n2 → n1').waitFor();
    await region.getByText('default/p3 (n3)').waitFor();
    await region.getByText('default/fresh (pending)').waitFor();
    await check('history-compared');
    await page.getByRole('checkbox', { name: 'Table' }).check();
    for (const [name, state] of [['fresh', 'added'], ['n1', 'fuller'], ['n2', 'emptier']])
      await page.getByRole('row', { name: new RegExp(`\\b${name}\\b.*\\b${state}$`) }).waitFor();
    await page.getByRole('checkbox', { name: 'Table' }).uncheck();
    await page.getByLabel('Compare with').selectOption('nothing');
    await region.waitFor({ state: 'hidden' });
    assert.doesNotMatch(page.url(), /with/);
  });
  const size = NARROW;
  await visit(address, '#/fleet?generation=1&with=now', { size, scheme: 'dark' }, async (page, check) => {
    await page.locator('.compared').getByText('nodes: 1 added, 1 removed, 1 fuller, 1 emptier;').waitFor();
    await check('history-narrow');
  });
});

test('a session can begin at an older reading, and the slider is hidden in it', async () => {
  const { address } = await readings(cluster(2, 2), cluster(3, 2));
  await visit(address, '#/what-if?generation=1&ask={"drain":["n1"]}', {}, async (page) => {
    await page.getByRole('button', { name: /Keep/ }).first().click();
    await page.getByText(/on generation 1/).first().waitFor();
    assert.ok(await page.locator('#times').isHidden());
    assert.doesNotMatch(page.url(), /generation/);
  });
});

test('a reading that is not held is reported', async () => {
  const { address } = await readings(cluster(2, 2), cluster(3, 2));
  const expected = /404/;
  await visit(address, '#/fleet?generation=7', { expected }, async (page) => {
    await page.locator('#fleet').getByText('generation 7 is not held: the newest is 2').waitFor();
    await page.getByRole('slider', { name: 'Time' }).focus();
    await page.keyboard.press('ArrowLeft');
    await page.getByRole('application', { name: /Map of 2 nodes/ }).waitFor();
  });
});

test('a replay is played, and the slider shows its moments', async () => {
  const made = await folder();
  const file = async (name, items) => {
    await writeFile(join(made, name), JSON.stringify({ apiVersion: 'v1', kind: 'List', items }));
    return join(made, name);
  };
  const trace = (name, cpu, createdAt, deletedAt) => {
    const made = pod(name, undefined, { cpu });
    const at = (second) => second && `2026-01-01T00:00:${second}Z`;
    Object.assign(made.metadata, { creationTimestamp: at(createdAt), deletionTimestamp: at(deletedAt) });
    return made;
  };
  const nodes = await file('nodes.json', [node('n1', { cpu: '2' })]);
  const pods = await file('pods.json', [trace('first', '2', '00', '59'), trace('second', '2', '10')]);
  const files = ['--nodes', nodes, '--pods', pods];
  const address = await serve('--replay', ...files, '--mode', 'timed', '--speed', '20');
  await visit(address, '', {}, async (page, check) => {
    const end = '1 Jan 2026, 00:00:59 UTC';
    await page.getByText(`the replay of pods.json on nodes.json · generation 3 · ${end} · the end`).waitFor();
    const slider = page.getByRole('slider', { name: 'Time' });
    const text = () => slider.getAttribute('aria-valuetext');
    assert.equal(await text(), `now, ${end}, generation 3: 1 node, 1 pod, 0 pending`);
    await slider.focus();
    await page.keyboard.press('ArrowLeft');
    assert.equal(await text(), '1 Jan 2026, 00:00:20 UTC, generation 2: 1 node, 2 pods, 1 pending');
    await check('replay');
    await page.getByRole('link', { name: 'Pending' }).click();
    await page.getByText('1 pod pending in 1 group').waitFor();
  });
});
