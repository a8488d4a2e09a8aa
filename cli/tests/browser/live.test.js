// The page follows its cluster, and keeps what a person is doing.

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { hide, picture, settle, until, visit } from './browser.js';
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
    await page.locator('#source').getByText('generation 2').waitFor();
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
    await page.locator('#source').getByText('generation 2').waitFor();
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
    await page.locator('#source').getByText('generation 2').waitFor();
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

/** Counts the questions to a path of the API from now on. */
function counted(page, path) {
  const found = { number: 0 };
  page.on('request', (request) => {
    if (new URL(request.url()).pathname === `/api/v1/${path}`) found.number++;
  });
  return found;
}

test('an event with the generation that is shown causes no question', async () => {
  const { address } = await serveFile(cluster(2, 2));
  await visit(address, 'page/page.css', {}, async (page) => {
    const [nodes, summaries] = ['nodes', 'summary'].map((path) => counted(page, path));
    const connected = page.waitForRequest(/events$/);
    await page.goto(address.href);
    await connected;
    await page.getByRole('application', { name: /Map of 2 nodes/ }).waitFor();
    await page.waitForTimeout(3500); // A refresh comes 2 seconds after its event.
    assert.deepEqual([nodes.number, summaries.number], [1, 1]);
  });
});

test('a hidden page does not listen, and follows when it is shown again', async () => {
  const { address, write } = await serveFile(cluster(2, 2));
  const init = () => {
    const Original = globalThis.EventSource;
    globalThis.sources = [];
    globalThis.EventSource = class extends Original {
      constructor(url) {
        super(url);
        globalThis.sources.push(this);
      }
    };
  };
  await visit(address, '', { init }, async (page) => {
    const open = () => page.evaluate(() => globalThis.sources.filter((it) => it.readyState !== 2).length);
    await page.getByRole('application', { name: /Map of 2 nodes/ }).waitFor();
    assert.equal(await open(), 1);
    await page.evaluate(hide, true);
    assert.equal(await open(), 0);
    await write(cluster(3, 3));
    await until(
      () => ask(address, 'summary'),
      ({ generation }) => generation === 2,
      'the file is read again',
    );
    await page.evaluate(hide, false);
    assert.equal(await open(), 1);
    await page.getByRole('application', { name: /Map of 3 nodes/ }).waitFor();
  });
});

test('a node whose zone changes moves on the map', async () => {
  const { address, write } = await serveFile(cluster(4, 0));
  await visit(address, '', {}, async (page) => {
    const map = page.getByRole('application', { name: /Map of 4 nodes/ });
    const tip = page.locator('.stage .tip b');
    await map.waitFor();
    await settle(page);
    // n2 is the second node of the first zone, which n0 begins.
    await map.focus();
    for (const key of ['ArrowUp', 'ArrowLeft', 'ArrowRight']) await page.keyboard.press(key);
    assert.equal(await tip.textContent(), 'n2');
    await write([...cluster(2, 0), node('n2', { zone: 'z2' }), node('n3', { zone: 'z1' })]);
    await page.locator('#source').getByText('generation 2').waitFor();
    await until(
      async () => {
        for (const key of ['ArrowUp', 'ArrowLeft', 'ArrowRight']) await page.keyboard.press(key);
        return tip.textContent();
      },
      (name) => name !== 'n2',
      'n2 is no longer beside n0',
    );
  });
});

test('a refresh does not move the map to the node that was found', async () => {
  const { address, write } = await serveFile(cluster(900, 0));
  await visit(address, '', {}, async (page) => {
    const map = page.getByRole('application', { name: /Map of 900 nodes/ });
    await map.waitFor();
    await page.getByLabel('Find nodes').fill('n899');
    await page.getByText('1 of 900 nodes').waitFor();
    const { x, y, width, height } = await map.boundingBox();
    await page.mouse.move(x + 20, y + 60);
    for (let step = 0; step < 8; step++) await page.mouse.wheel(0, -300);
    await page.mouse.move(x + width / 2, y + height / 2);
    await page.mouse.down();
    await page.mouse.move(x + width / 2 + 3000, y + height / 2 + 3000);
    await page.mouse.up();
    await page.mouse.move(0, 0);
    await page.waitForTimeout(400); // The last frame of a drag is drawn when the map rests.
    await settle(page);
    const before = await picture(map);
    await write([...cluster(900, 0), pod('fresh', 'n899')]);
    await page.locator('#source').getByText('generation 2').waitFor();
    await page.locator('#summary').getByText('1', { exact: true }).waitFor();
    await page.waitForTimeout(500);
    await settle(page);
    assert.equal(await picture(map), before, 'the map stays, since n899 is out of view');
  });
});

test('a newer reading is audited on request', async () => {
  const { address, write } = await serveFile(cluster(2, 2));
  await visit(address, '#/resilience', {}, async (page, check) => {
    const audits = counted(page, 'audit');
    const again = page.getByRole('button', { name: 'Audit again' });
    await page.getByText(/2 nodes, 2 pods/).waitFor();
    const before = audits.number;
    await write(cluster(3, 3));
    await again.waitFor();
    await check('live-audit');
    assert.equal(audits.number, before, 'nothing was audited without a request');
    await again.click();
    await page.getByText(/3 nodes, 3 pods/).waitFor();
    await again.waitFor({ state: 'hidden' });
  });
});

test('a source that cannot be read again is reported above all views', async () => {
  const { address, file, write } = await serveFile(cluster(2, 2));
  await visit(address, '', {}, async (page, check) => {
    await page.getByRole('application', { name: /Map of 2 nodes/ }).waitFor();
    await writeFile(file, '{"apiVersion": "v1", "kind": "List", "items": [');
    const banner = page.getByRole('region', { name: 'Source' });
    await banner.getByText(/^The source could not be read again: .*cluster\.json/).waitFor();
    await check('live-trouble');
    // The same cluster is no new reading.
    await write(cluster(2, 2));
    await banner.waitFor({ state: 'hidden' });
    await page.locator('#source').getByText('generation 1').waitFor();
  });
});
