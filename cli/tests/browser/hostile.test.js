// Names in a cluster are chosen by others: markup and text from right to left are shown as text, on each screen.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { NARROW, settle, visit, WIDE } from './browser.js';
import { hostile, MARKUP, RIGHT_TO_LEFT, SHOWN } from './clusters.js';
import { ask, serveFile } from './server.js';

let address;
let session;

before(async () => {
  ({ address } = await serveFile(hostile()));
  session = (await ask(address, 'sessions', { fail_node: [`b${RIGHT_TO_LEFT}`] })).id;
});

/** The fragment of each screen with the names that it shows, and the button to press first. */
const SCREENS = {
  fleet: [() => '#/fleet', []],
  table: [() => '#/fleet?table=1', [`a${MARKUP}`, `b${SHOWN}`, `p${MARKUP}`]],
  node: [
    () => link('fleet', { node: `a${MARKUP}` }),
    [`a${MARKUP}`, `running${MARKUP}`, `${MARKUP}=${SHOWN}`],
  ],
  other: [() => link('fleet', { node: `b${RIGHT_TO_LEFT}` }), [`b${SHOWN}`, `running${SHOWN}`]],
  pending: [() => '#/pending', [`pending${MARKUP}`, `pending${SHOWN}`]],
  explanation: [() => link('pending', { pod: `default/pending${MARKUP}` }), [`pending${MARKUP}`]],
  answer: [
    () => link('what-if', { ask: JSON.stringify({ fail_zone: [`z${MARKUP}`] }) }),
    [`fail zone z${MARKUP}`, `running${MARKUP}`],
  ],
  session: [() => link('what-if', { session }), [`fail b${SHOWN}`, `running${SHOWN}`]],
  resilience: [() => '#/resilience', []],
  pools: [() => '#/resilience', [`p${MARKUP}`, SHOWN], 'Try to upgrade each pool'],
  // The second pod joins the first one.
  duel: [() => duel('MostAllocated', 'all'), [`a${MARKUP}`, `running${SHOWN}`]],
  'no such strategy': [() => duel(`'${MARKUP}'`, 'pending'), [MARKUP]],
  'no such node': [() => link('fleet', { node: MARKUP }), [MARKUP]],
  'no such pod': [() => link('pending', { pod: `default/${MARKUP}` }), [MARKUP]],
  'no such session': [() => link('fleet', { session: MARKUP }), []],
};

const link = (view, params) => `#/${view}?${new URLSearchParams(params)}`;

/** A comparison with a configuration that has this scoring strategy. */
const duel = (type, pods) =>
  link('duel', {
    compare: JSON.stringify({
      configs: [
        '',
        `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: ${type}, resources: [{name: cpu, weight: 1}]}}
`,
      ],
      pods,
    }),
  });

for (const [name, [fragment, names, button]] of Object.entries(SCREENS)) {
  for (const size of [NARROW, WIDE]) {
    test(`hostile names are text: ${name}, ${size.width} px wide`, () =>
      visit(address, fragment(), { size, expected: /status of (404|422)/ }, async (page, check) => {
        await page.locator('main section:visible, [role=alert]:visible').first().waitFor();
        if (button) await page.getByRole('button', { name: button }).click();
        await settle(page);
        // Details that are closed are read as well.
        const shown = await page.evaluate(() => document.body.textContent);
        for (const it of names) assert.ok(shown.includes(it), `${JSON.stringify(it)} is shown`);
        assert.doesNotMatch(shown, /[\u200b-\u200f\u202a-\u202e\u2066-\u2069]/);
        assert.equal(await page.locator('img, script:not([src^="page/"]), iframe').count(), 0);
        assert.equal(await page.locator('[onerror], [onmouseover], [href^="javascript:"]').count(), 0);
        await page.mouse.move(size.width / 2, size.height / 2);
        await check(`hostile-${name.replaceAll(' ', '-')}-${size.width}`);
        assert.equal(await page.evaluate(() => globalThis.isHacked), undefined);
      }));
  }
}

test('a name from right to left leaves the text beside it as it is', () =>
  visit(address, link('fleet', { node: `b${RIGHT_TO_LEFT}` }), {}, async (page) => {
    const panel = page.getByRole('complementary', { name: 'Node' });
    await panel.getByText(/1 pod$/).waitFor();
    const places = await panel.getByText(/1 pod$/).evaluate((element) => {
      const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
      let last;
      while (texts.nextNode()) last = texts.currentNode;
      return [3, 2, 1].map((back) => {
        const range = document.createRange();
        range.setStart(last, last.length - back);
        range.setEnd(last, last.length - back + 1);
        return range.getBoundingClientRect().left;
      });
    });
    assert.deepEqual(
      places,
      [...places].sort((a, b) => a - b),
      'the letters of "pod" are from left to right',
    );
  }));
