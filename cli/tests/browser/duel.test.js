// Duel: configurations are edited, compared, and their answer is read.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { NARROW, settle, visit } from './browser.js';
import { node, pod } from './clusters.js';
import { ask, serveFile } from './server.js';

let address;
before(async () => {
  const pods = Array.from({ length: 6 }, (_, at) => pod(`p${at}`, `n${at % 3}`, { cpu: '2' }));
  const labels = { price: '1.50' };
  ({ address } = await serveFile([...['n0', 'n1', 'n2'].map((name) => node(name, { labels })), ...pods]));
});

for (const [name, size, scheme] of [
  ['wide', undefined, 'light'],
  ['narrow', NARROW, 'dark'],
]) {
  test(`two configurations are compared: ${name}`, () =>
    visit(address, '#/duel', { size, scheme }, async (page, check) => {
      await check(`duel-empty-${name}`);
      await page.getByLabel('Price label').fill('price');
      await page.keyboard.press('Enter');
      const headline = page.getByText('configuration 2 packs better than configuration 1', { exact: false });
      await headline.first().waitFor();
      const table = page.getByRole('table', { name: 'Figures' });
      const cells = async (name) => (await table.getByRole('row', { name }).allTextContents()).join();
      assert.equal(await cells(/^placed/), 'placed66');
      assert.match(await cells(/^nodes used/), /^nodes used3 of 31 of 3$/);
      assert.equal(await cells(/^price of used/), 'price of used nodes per hour4.501.50');
      await page.getByRole('img', { name: /^cpu requested of the node in the middle/ }).waitFor();
      await page.getByText('The first decision that differs: pod default/p').waitFor();
      const scores = page.getByRole('table', { name: /^Scores for default\/p/ });
      const found = await ask(
        address,
        'compare',
        JSON.parse(new URLSearchParams(new URL(page.url()).hash.split('?')[1]).get('compare')),
      );
      const total = found.runs[1].first_difference.scores[1].here.total;
      assert.equal(
        await scores.getByRole('row').last().getByRole('cell').last().textContent(),
        String(total),
      );
      await page.getByText('The same as a table').click();
      await check(`duel-${name}`);
    }));
}

test('configurations are added and removed with the keyboard', () =>
  visit(address, '#/duel', {}, async (page) => {
    const areas = page.getByRole('textbox', { name: /^Configuration \d: / });
    assert.equal(await areas.count(), 2);
    assert.equal(await page.getByRole('button', { name: 'Remove configuration 1' }).isVisible(), false);
    const add = page.getByRole('button', { name: 'Add a configuration' });
    await add.focus();
    await page.keyboard.press('Enter');
    await page.keyboard.type('# mine');
    assert.equal(await areas.nth(2).inputValue(), '# mine', 'the focus is in the new field');
    for (let left = 5; left > 0; left -= 1) await add.click();
    assert.equal(await areas.count(), 8);
    assert.equal(await add.isDisabled(), true);
    await page.getByRole('button', { name: 'Remove configuration 1' }).click();
    assert.equal(await areas.count(), 7);
    assert.equal(await areas.nth(1).inputValue(), '# mine', 'the others keep their texts');
  }));

test('an invalid configuration is named, and stays to be corrected', () =>
  visit(address, '#/duel', { expected: /422/ }, async (page, check) => {
    const second = page.getByRole('textbox', { name: /^Configuration 2: / });
    await second.fill('kind: [');
    await page.getByRole('button', { name: 'Compare' }).click();
    await page
      .getByRole('alert')
      .getByText(/configuration 2:\d/)
      .waitFor();
    assert.equal(await second.getAttribute('aria-invalid'), 'true');
    assert.equal(await second.inputValue(), 'kind: [');
    await check('duel-invalid');
  }));

test('a link with a comparison runs it, and one that is none says so', () =>
  visit(address, '#/duel?compare=%7B%7D', {}, async (page) => {
    await page.getByText('The address has no comparison').waitFor();
    const question = { configs: ['', ''], pods: 'pending' };
    await page.goto(new URL(`#/duel?compare=${encodeURIComponent(JSON.stringify(question))}`, address).href);
    await page.getByText('Every pod is placed on the same node.').waitFor();
    await settle(page);
    assert.equal(await page.getByLabel('Pods', { exact: true }).inputValue(), 'pending');
  }));
