// Pending pods: their groups, the explanation of one, and a change that helps, tried in the simulation.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { NARROW, replaced, until, visit } from './browser.js';
import { node, pod } from './clusters.js';
import { serve, serveFile } from './server.js';

let address;
before(async () => {
  address = await serve();
});

const group = (page, name) => page.getByRole('link', { name: new RegExp(name) });
const headline = (page) => page.locator('.headline:visible').first();
const heat = (page) => page.getByRole('img', { name: /Rejections by plugin/ });

test('a group is opened with the keyboard and explained', () =>
  visit(address, '#/pending', {}, async (page, check) => {
    await page.getByText(/^19 pods pending in \d groups, none of which fits\.$/).waitFor();
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
    assert.equal(await page.getByLabel('Namespace of these').inputValue(), 'team');
    await check('pending-tried');
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

test('the pods that fit alone are counted, not their groups', () =>
  visit(address, 'page/page.css', {}, async (page) => {
    await replaced(page, 'pending', (found) => ({
      ...found,
      pending: 5,
      groups: [
        { of: 'Deployment a/a', pods: ['a/1', 'a/2', 'a/3'], fits_on: 2, message: null },
        { of: 'Deployment b/b', pods: ['b/1', 'b/2'], fits_on: 0, message: 'gated' },
      ],
    }));
    await page.goto(new URL('#/pending', address).href);
    await page.getByText('5 pods pending in 2 groups, of which 3 would fit alone.').waitFor();
  }));

for (const [name, tone, answer] of [
  ['a pod that fits', 'good', { why: 'fits on 2 of 3 nodes', fits_on: 2 }],
  ['a pod that waits at a gate', 'bad', { why: 'not scheduled: it has a gate', fits_on: 2 }],
  ['a pod that fits no node', 'bad', { why: 'fits on 0 of 3 nodes', fits_on: 0 }],
  ['a pod that has finished', '', { why: 'has finished (Succeeded)', fits_on: 0, state: 'finished' }],
]) {
  test(`the first line about ${name} is marked ${tone || 'neither good nor bad'}`, () =>
    visit(address, 'page/page.css', {}, async (page) => {
      const empty = { state: 'pending', nodes: {}, groups: [], changes: [], preemption: null, message: null };
      await replaced(page, 'explain', (found) => ({ ...found, ...empty, ...answer }));
      await page.goto(new URL('#/pending?pod=data%2Freport-0', address).href);
      await page.getByText(answer.why, { exact: true }).first().waitFor();
      assert.equal((await headline(page).getAttribute('class')).trim(), `headline ${tone}`.trim());
    }));
}

test('an explanation that replaces another adds no listener to the theme', () => {
  const init = () => {
    globalThis.listeners = 0;
    const original = MediaQueryList.prototype.addEventListener;
    MediaQueryList.prototype.addEventListener = function add(...given) {
      globalThis.listeners++;
      return original.apply(this, given);
    };
  };
  return visit(address, '#/pending?pod=data%2Freport-0', { init }, async (page) => {
    await heat(page).waitFor();
    const before = await page.evaluate(() => globalThis.listeners);
    await group(page, 'Deployment shop/cache').click();
    await page.getByRole('heading', { name: 'shop/cache-22' }).waitFor();
    await heat(page).waitFor();
    assert.equal(await page.evaluate(() => globalThis.listeners), before);
    const picture = () => heat(page).evaluate((it) => it.toDataURL());
    const light = await picture();
    await page.emulateMedia({ colorScheme: 'dark' });
    await until(picture, (now) => now !== light, 'the picture follows the theme');
  });
});
