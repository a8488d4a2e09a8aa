// Each screen in light and dark, on a telephone and on a desk: readable, in reach of a keyboard, and not empty.

import { before, test } from 'node:test';
import { NARROW, settle, visit, WIDE } from './browser.js';
import { ask, serve } from './server.js';

let address;
let session;

before(async () => {
  address = await serve();
  session = (await ask(address, 'sessions', { drain: ['general-00'] })).id;
});

const question = (change) => encodeURIComponent(JSON.stringify(change));

/** The fragment of each screen, and what is done there before it is checked. */
const SCREENS = {
  fleet: [() => '#/fleet'],
  node: [() => '#/fleet?node=gpu-30'],
  selection: [() => '#/fleet?select=general-00,general-02'],
  table: [() => '#/fleet?table=1&q=general'],
  pending: [() => '#/pending'],
  explanation: [() => '#/pending?pod=shop%2Fcache-22'],
  question: [() => `#/what-if?draft=${question({ drain: ['general-00'] })}`],
  answer: [() => `#/what-if?ask=${question({ drain: ['general-00', 'memory-24'] })}`],
  upgrade: [() => `#/what-if?ask=${question({ upgrade: 'all', max_surge: '1' })}`],
  session: [() => `#/what-if?session=${session}`],
  failures: [
    () => '#/resilience',
    async (page) => {
      await page.getByRole('button', { name: 'Fail each zone' }).click();
      await page.getByRole('table', { name: /zones/ }).waitFor();
    },
  ],
  duel: [() => `#/duel?compare=${question({ configs: ['', ''], pods: 'all' })}`],
  missing: [() => '#/pending?pod=shop%2Fno-such-pod', undefined, /404|422/],
};

for (const [name, [fragment, prepare, expected]] of Object.entries(SCREENS)) {
  for (const scheme of ['light', 'dark']) {
    for (const size of [NARROW, WIDE]) {
      test(`${name} is readable, ${scheme}, ${size.width} px wide`, () =>
        visit(address, fragment(), { size, scheme, expected }, async (page, check) => {
          await page.locator('main section:visible').first().waitFor();
          await settle(page);
          await prepare?.(page);
          await check(`${name}-${scheme}-${size.width}`);
        }));
    }
  }
}
