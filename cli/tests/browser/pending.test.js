// Pending pods: their groups, the explanation of one, and a change that helps, tried in the simulation.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { NARROW, until, visit } from './browser.js';
import { node, pod } from './clusters.js';
import { serve, serveFile } from './server.js';

let address;
before(async () => {
  address = await serve();
});

const group = (page, name) => page.getByRole('link', { name: new RegExp(name) });
const heat = (page) => page.getByRole('img', { name: /Rejections by plugin/ });

test('a group is opened with the keyboard and explained', () =>
  visit(address, '#/pending', {}, async (page, check) => {
    await page.getByText(/^19 pods pending in \d groups, of which 0 would fit alone\.$/).waitFor();
    await group(page, 'Deployment shop/cache').focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'shop/cache-22' }).waitFor();
    await heat(page).waitFor();
    await page
      .getByRole('table', { name: 'Why nodes reject the pod' })
      .getByText(/anti-affinity/)
      .waitFor();
    await check('pending-explained');
    await page.keyboard.press('Tab');
    assert.notEqual(await page.evaluate(() => document.activeElement), null);
  }));

test('the heat map names a node, and opens it', () =>
  visit(address, '#/pending?pod=data%2Freport-0', {}, async (page, check) => {
    await heat(page).hover({ position: { x: 30, y: 8 } });
    await page.locator('.heat .tip:visible').waitFor();
    const name = await page.locator('.heat .tip b').textContent();
    await check('pending-heat');
    await heat(page).click({ position: { x: 30, y: 8 } });
    await page.getByRole('complementary', { name: 'Node' }).getByRole('heading', { name }).waitFor();
  }));

test('on a narrow screen the explanation is shown, and the list is one step back', () =>
  visit(address, '#/pending', { size: NARROW }, async (page, check) => {
    await group(page, 'Deployment ml/tune').click();
    const heading = page.getByRole('heading', { name: /ml\/tune/ });
    await heading.waitFor();
    await until(
      () => heading.evaluate((it) => it.getBoundingClientRect().top),
      (top) => top < 740,
      'the explanation is in view',
    );
    await check('pending-narrow');
    await page.goBack();
    await group(page, 'Deployment ml/tune').waitFor();
  }));

test('any pod or controller can be explained', () =>
  visit(address, '#/pending', { expected: /status of (404|422)/ }, async (page, check) => {
    const name = page.getByLabel('Explain a pod or controller');
    await name.fill('shop/web-3');
    await name.press('Enter');
    await page.getByRole('heading', { name: 'shop/web-3' }).waitFor();
    await page.getByRole('table', { name: /score/ }).waitFor();
    await check('pending-placed');
    await page.getByRole('button', { name: /How many more pods/ }).click();
    await page
      .getByText(/more pods? of this shape fits?/)
      .first()
      .waitFor();
    await name.fill('shop/wbe-3');
    await name.press('Enter');
    await page.getByRole('alert').waitFor();
    await check('pending-unknown');
  }));

test('a change that helps is tried in the simulation', async () => {
  const cluster = [
    node('only', { cpu: '4' }),
    pod('small', 'only', { cpu: '2', namespace: 'team' }),
    pod('large', undefined, { cpu: '3', namespace: 'team' }),
  ];
  const served = await serveFile(cluster);
  await visit(served.address, '#/pending?pod=team%2Flarge', {}, async (page, check) => {
    await page
      .getByRole('button', { name: /Try it: evict/ })
      .first()
      .click();
    await page.locator('.headline:visible').first().waitFor();
    await page.getByRole('heading', { name: /remove pod\/small/ }).waitFor();
    await check('pending-tried');
    assert.equal(await page.getByLabel('Namespace of these').inputValue(), 'team');
    await page
      .getByRole('table', { name: /Placed/ })
      .getByText('team/large')
      .waitFor();
  });
});

test('a cluster without pending pods is no error', async () => {
  const served = await serveFile([node('only'), pod('small', 'only')]);
  await visit(served.address, '#/pending', { size: NARROW }, async (page, check) => {
    await page.getByText('No pending pods').waitFor();
    await check('pending-none');
  });
});
