// A link restores what its sender saw: the view, the session, the selection and the question.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { before, test } from 'node:test';
import { settle, until, visit } from './browser.js';
import { ask, serve } from './server.js';

let address;
before(async () => {
  address = await serve();
});

/** Opens the address of the page in a browser without its memory, and returns the text of the view there. */
async function received(page) {
  const { hash } = new URL(page.url());
  let text;
  await visit(address, hash, {}, async (other) => {
    await other.locator('main section:visible').first().waitFor();
    await until(
      () => shown(other),
      (now) => now.length > 200,
      'the view is shown',
    );
    text = await shown(other);
  });
  return text;
}

async function shown(page) {
  await settle(page);
  return page.evaluate(() =>
    [...document.querySelectorAll('#banner, main')]
      .map((it) => it.innerText)
      .join('\n')
      .replace(/in \d+\.\d s/g, ''),
  );
}

for (const [name, use] of Object.entries({
  'a search and a node': async (page) => {
    await page.getByLabel('Find nodes').fill('memory');
    await page.getByRole('checkbox', { name: 'Table' }).check();
    await page.getByRole('button', { name: 'memory-25' }).click();
    await page.getByRole('heading', { name: 'memory-25' }).waitFor();
  },
  'a selection': async (page) => {
    await page.getByLabel('Find nodes').fill('gpu');
    await page.getByRole('button', { name: 'Select these' }).click();
    await page.getByLabel('Find nodes').fill('');
    await page.getByRole('group', { name: 'Selection' }).waitFor();
  },
  'the resource of the map': async (page) => {
    await page.getByLabel('Fill by').selectOption('memory');
  },
  'an explanation': async (page) => {
    await page.getByRole('link', { name: /^Pending/ }).click();
    await page.getByRole('link', { name: /data\/archive/ }).click();
    await page.getByRole('heading', { name: 'data/archive-0' }).waitFor();
  },
  'a question with its answer': async (page) => {
    await page.getByRole('link', { name: 'What-if' }).click();
    await page.getByLabel('Fail zones').fill('eu-1c');
    await page.keyboard.press('Enter');
    await page.locator('.headline:visible').first().waitFor();
  },
  'a comparison': async (page) => {
    await page.getByRole('link', { name: 'Duel' }).click();
    await page.getByLabel('Pods', { exact: true }).selectOption('pending');
    await page.getByRole('button', { name: 'Compare' }).click();
    await page.locator('.headline:visible').first().waitFor();
  },
  'a session': async (page) => {
    const { id } = await ask(address, 'sessions', { drain: ['general-04'] });
    await page.goto(new URL(`#/fleet?session=${id}&node=general-04`, address).href);
    await page.getByRole('heading', { name: 'general-04' }).waitFor();
    await page.getByText('No pods.').waitFor();
  },
})) {
  test(`a link restores ${name}`, () =>
    visit(address, '', {}, async (page, check) => {
      await page.getByRole('application').waitFor();
      await use(page);
      const expected = await shown(page);
      assert.equal(await received(page), expected);
      await check(`link-${name.replaceAll(' ', '-')}`);
    }));
}

test('the links of the navigation keep the session', async () => {
  const { id } = await ask(address, 'sessions', { drain: ['general-04'] });
  // The audit of a session is refused.
  await visit(address, `#/fleet?session=${id}`, { expected: /status of 422/ }, async (page) => {
    for (const view of ['Pending', 'What-if', 'Resilience', 'Fleet']) {
      await page.getByRole('navigation').getByRole('link', { name: view }).click();
      await page.getByRole('region', { name: 'Session' }).getByText('drain general-04').waitFor();
      assert.ok(page.url().includes(`session=${id}`));
    }
    await page
      .getByRole('button', { name: /^(Undo|Back to the cluster)$/ })
      .last()
      .click();
    await until(
      () => page.url(),
      (url) => !url.includes('session='),
      'the session is left',
    );
  });
});

test('back and forward follow what a person opened', () =>
  visit(address, '#/fleet', {}, async (page) => {
    await page.getByRole('link', { name: 'Resilience' }).click();
    await page.getByRole('link', { name: /^Pending/ }).click();
    await page.getByRole('link', { name: /data\/archive/ }).click();
    await page.getByRole('heading', { name: 'data/archive-0' }).waitFor();
    await page.goBack();
    await page.goBack();
    await page.getByRole('heading', { name: 'Audit' }).waitFor();
    await page.goForward();
    await page.getByRole('link', { name: /data\/archive/ }).waitFor();
  }));

for (const [name, hash, file, heading] of [
  ['an explanation', '#/pending?pod=data%2Farchive-0', 'explain-data-archive-0.json', 'data/archive-0'],
  [
    'a what-if',
    '#/what-if?ask=%7B%22drain%22%3A%5B%22general-01%22%5D%7D',
    'what-if.json',
    'drain general-01',
  ],
]) {
  test(`the answer of ${name} is downloaded, and its link copied`, () =>
    visit(address, hash, {}, async (page) => {
      await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
      await page.getByRole('heading', { name: heading, exact: true }).waitFor();
      const download = page.waitForEvent('download');
      await page.getByRole('button', { name: 'Download JSON' }).click();
      assert.equal((await download).suggestedFilename(), file);
      const answer = JSON.parse(await readFile(await (await download).path(), 'utf8'));
      assert.equal(answer.generation, 1);
      await page.getByRole('button', { name: 'Copy link' }).click();
      await page.getByRole('button', { name: 'Link copied' }).waitFor();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), page.url());
    }));
}
