// The page follows its cluster, and keeps what a person is doing.

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { until, visit } from './browser.js';
import { node, pod } from './clusters.js';
import { ask, serveFile } from './server.js';

const cluster = (nodes, pods) => [
  ...Array.from({ length: nodes }, (_, at) => node(`n${at}`, { zone: `z${at % 2}` })),
  ...Array.from({ length: pods }, (_, at) => pod(`p${at}`, `n${at % nodes}`)),
];
const pending = pod('waiting', undefined, { nodeSelector: { disk: 'fast' } });

test('the fleet follows a changed file, and keeps the search and the selection', async () => {
  const { address, write } = await serveFile(cluster(4, 8));
  await visit(address, '', {}, async (page, check) => {
    await page.getByRole('application', { name: /Map of 4 nodes/ }).waitFor();
    await page.getByLabel('Find nodes').fill('n3');
    await page.getByRole('button', { name: 'Select these' }).click();
    await page.getByLabel('Find nodes').fill('n');
    await page.getByLabel('Find nodes').focus();
    await write([...cluster(4, 12), node('n-new', { zone: 'z9' }), pending]);
    await page.getByRole('application', { name: /Map of 5 nodes/ }).waitFor();
    await page.getByText('generation 2').waitFor();
    await page.getByRole('link', { name: /Pending 1/ }).waitFor();
    await page.getByText('1 node selected').first().waitFor();
    assert.equal(await page.getByLabel('Find nodes').inputValue(), 'n');
    await page.getByText('5 of 5 nodes').waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.id), 'search', 'the focus stays');
    await check('live-fleet');
  });
});

test('the panel of a node follows a changed file, and keeps the focus and what is open', async () => {
  const { address, write } = await serveFile(cluster(2, 2));
  await visit(address, '#/fleet?node=n1', {}, async (page, check) => {
    const panel = page.getByRole('complementary', { name: 'Node' });
    await panel.getByText('default/p1').waitFor();
    await panel.getByText(/^\d labels$/).click();
    await panel.getByRole('button', { name: 'Drain…' }).focus();
    await write([...cluster(2, 2), pod('fresh', 'n1')]);
    await page.getByText('generation 2').waitFor();
    await panel.getByText('default/fresh').waitFor({ timeout: 5000 });
    assert.ok(await panel.getByText('kubernetes.io/hostname=n1').isVisible(), 'the labels stay open');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Drain…', 'the focus stays');
    await check('live-node');
  });
});

test('a view that was not open follows when it is opened', async () => {
  const { address, write } = await serveFile(cluster(2, 2));
  await visit(address, '', {}, async (page) => {
    await page.getByRole('application', { name: /Map of 2 nodes/ }).waitFor();
    await page.getByRole('link', { name: /^Pending/ }).click();
    await write(cluster(3, 3));
    await page.getByText('generation 2').waitFor();
    await page.getByRole('link', { name: 'Fleet' }).click();
    await page.getByRole('application', { name: /Map of 3 nodes/ }).waitFor({ timeout: 5000 });
  });
});

test('pending pods follow a changed file', async () => {
  const { address, write } = await serveFile(cluster(2, 2));
  await visit(address, '#/pending', {}, async (page, check) => {
    await page.getByText('No pending pods').waitFor();
    await write([...cluster(2, 2), pending]);
    await page
      .getByRole('link', { name: /waiting|without a controller|1 pods?/ })
      .first()
      .waitFor();
    await check('live-pending');
  });
});

test('an explanation follows a changed file, and keeps the focus and the scroll', async () => {
  const { address, write } = await serveFile([...cluster(2, 2), pending]);
  const size = { width: 1000, height: 400 };
  await visit(address, '#/pending?pod=default%2Fwaiting', { size }, async (page) => {
    await page.getByText('fits on 0 of 2 nodes', { exact: true }).waitFor();
    const message = page.getByText('Message of the scheduler');
    await message.focus();
    await message.scrollIntoViewIfNeeded();
    const before = await page.evaluate(() => scrollY);
    assert.ok(before > 0, 'the explanation is longer than the window');
    await write([...cluster(2, 2), node('slow'), pending]);
    await page.getByText('fits on 0 of 3 nodes', { exact: true }).waitFor({ timeout: 5000 });
    assert.equal(
      await page.evaluate(() => document.activeElement.textContent),
      'Message of the scheduler',
      'the focus stays',
    );
    assert.ok(Math.abs((await page.evaluate(() => scrollY)) - before) < 80, 'the scroll stays');
    await write([...cluster(2, 2), node('fast', { labels: { disk: 'fast' } }), pending]);
    await page.getByText('fits on 1 of 3 nodes', { exact: true }).waitFor({ timeout: 5000 });
  });
});

test('a session does not follow a changed file', async () => {
  const { address, write } = await serveFile(cluster(4, 8));
  const { id } = await ask(address, 'sessions', { drain: ['n0'] });
  await visit(address, `#/fleet?session=${id}`, {}, async (page) => {
    await page.getByRole('application', { name: /Map of 4 nodes/ }).waitFor();
    await write(cluster(7, 8));
    await until(
      () => ask(address, 'summary'),
      ({ generation }) => generation === 2,
      'the file is read again',
    );
    await page
      .getByRole('button', { name: /^(Undo|Back to the cluster)$/ })
      .last()
      .click();
    await page.getByRole('application', { name: /Map of 7 nodes/ }).waitFor();
  });
});

test('a file that is no cluster for a moment changes nothing', async () => {
  const { address, file, write } = await serveFile(cluster(4, 8));
  await visit(address, '', {}, async (page) => {
    await page.getByRole('application', { name: /Map of 4 nodes/ }).waitFor();
    await writeFile(file, '{"apiVersion": "v1", "kind": "List", "items": [');
    await until(
      () => ask(address, 'summary'),
      ({ generation }) => generation === 1,
      'the last good reading stays',
    );
    await write(cluster(3, 6));
    await page.getByRole('application', { name: /Map of 3 nodes/ }).waitFor();
  });
});
