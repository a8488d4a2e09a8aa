// What-if: questions, and the sessions that keep their answers.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { NARROW, replaced, until, visit } from './browser.js';
import { ask, drop, serve } from './server.js';

let address;
before(async () => {
  address = await serve();
});

const headline = (page) => page.locator('.headline:visible').first();
const banner = (page) => page.getByRole('region', { name: 'Session' });
const session = (page) => new URLSearchParams(page.url().split('?')[1]).get('session');
const sessions = async () => (await ask(address, 'sessions')).sessions;

async function drain(page, nodes) {
  const field = page.getByLabel('Drain nodes');
  await field.fill(nodes);
  await field.press('Enter');
  await page.getByRole('heading', { name: `drain ${nodes.replaceAll(' ', ', ')}`, exact: true }).waitFor();
  await headline(page).waitFor();
}

/** The digits of an id that are shown. */
const brief = (id) => id.slice(0, 8);

async function keep(page) {
  const before = session(page);
  await page.getByRole('button', { name: 'Keep as a session' }).click();
  return until(
    () => session(page),
    (id) => id && id !== before,
    'the session is in the address',
  );
}

test('a drain shows the pods that move, as the API answers', () =>
  visit(address, '#/what-if', {}, async (page, check) => {
    await drain(page, 'general-01');
    const expected = await ask(address, 'what-if', { drain: ['general-01'] });
    assert.equal(await headline(page).textContent(), expected.headline);
    const moved = expected.placed.filter((it) => !it.without_change && it.from);
    assert.ok(moved.length > 0);
    const figure = page.locator('.figures').getByText('moved').locator('xpath=following-sibling::dd');
    assert.equal(await figure.textContent(), String(moved.length));
    for (const { pod, to } of moved) {
      const text = await page.locator('main').textContent();
      assert.ok(text.includes(pod) && text.includes(to), `${pod} moves to ${to}`);
    }
    await check('what-if-drain');
  }));

test('sessions nest, are undone one at a time, and are dropped with those below', () =>
  visit(address, '#/what-if', {}, async (page, check) => {
    await drain(page, 'general-01');
    const outer = await keep(page);
    await banner(page).getByText('drain general-01').waitFor();
    await banner(page)
      .getByText(/ends an hour after its last use$/)
      .waitFor();
    await banner(page)
      .getByText(`Session ${brief(outer)}:`)
      .waitFor();
    assert.equal(
      await page.getByLabel('Drain nodes').inputValue(),
      '',
      'the question that is kept is cleared',
    );
    await drain(page, 'general-02');
    const inner = await keep(page);
    await until(
      sessions,
      (all) => all.find((it) => it.id === inner)?.parent === outer,
      'the second is below the first',
    );
    await check('what-if-nested');
    await banner(page).getByRole('button', { name: 'Undo' }).click();
    await until(
      () => session(page),
      (id) => id === outer,
      'the outer session is active',
    );
    await page.goto(new URL('#/fleet?node=general-01', address).href.replace('?', `?session=${outer}&`));
    await page.getByRole('complementary', { name: 'Node' }).getByText('No pods.').waitFor();
    await check('what-if-session-fleet');
    await page.getByRole('link', { name: 'What-if' }).click();
    await page
      .getByRole('button', { name: new RegExp(`Drop session.*below|Drop.*drain general-01`) })
      .first()
      .click();
    await until(sessions, (all) => !all.some((it) => it.id === outer || it.id === inner), 'both are dropped');
    await until(
      () => session(page),
      (id) => id === null,
      'the cluster as loaded is active',
    );
    await banner(page).waitFor({ state: 'hidden' });
  }));

test('a link to a session that has ended leads back to the cluster', () =>
  visit(
    address,
    '#/fleet?session=no-such-session',
    { size: NARROW, expected: /status of 404/ },
    async (page, check) => {
      await page.getByText('This session has ended').waitFor();
      await page.locator('main').waitFor({ state: 'hidden' });
      await check('what-if-ended');
      assert.equal(await page.getByRole('alert').count(), 1, 'one message');
      assert.equal(await page.getByRole('button', { name: 'Try again' }).count(), 0);
      await page.getByRole('button', { name: 'Back to the cluster' }).click();
      await page.getByRole('application', { name: /Map of 36 nodes/ }).waitFor();
    },
  ));

test('a question that the API refuses shows its reason', () =>
  visit(address, '#/what-if', { expected: /status of 4\d\d/ }, async (page, check) => {
    await page.getByLabel('Drain nodes').fill('no-such-node');
    await page.keyboard.press('Enter');
    await page
      .getByRole('alert')
      .getByText(/no-such-node/)
      .waitFor();
    await check('what-if-refused');
  }));

test('a session that ends while it is open leads back to the cluster', async () => {
  const { id } = await ask(address, 'sessions', { drain: ['general-04'] });
  await visit(address, `#/fleet?session=${id}`, { expected: /status of 404/ }, async (page) => {
    await page.getByRole('application', { name: /Map of 36 nodes/ }).waitFor();
    await drop(address, `sessions/${id}`);
    await page.getByRole('link', { name: /^Pending/ }).click();
    await page.getByText('This session has ended').waitFor();
    await page.getByRole('button', { name: 'Back to the cluster' }).click();
    await page.getByRole('link', { name: /data\/archive/ }).waitFor();
  });
});

test('a link to a session shows its answer first on a narrow screen', async () => {
  const { id } = await ask(address, 'sessions', { drain: ['general-04'] });
  await visit(address, `#/what-if?session=${id}`, { size: NARROW }, async (page, check) => {
    await headline(page).waitFor();
    const top = await headline(page).evaluate((it) => it.getBoundingClientRect().top);
    assert.ok(top < NARROW.height * 0.75, `the headline is in view: ${top}`);
    await check('what-if-session-narrow');
  });
});

test('an upgrade is drawn step by step', () =>
  visit(address, '#/what-if', { size: NARROW }, async (page, check) => {
    await page.getByLabel('Upgrade nodes by label').fill('pool=memory');
    await page.getByLabel('New nodes per step').fill('1');
    await page.keyboard.press('Enter');
    await page.getByRole('table', { name: 'Steps of the upgrade' }).waitFor();
    assert.ok((await page.locator('.gantt svg rect').count()) > 0);
    await check('what-if-upgrade');
  }));

for (const [name, label, value] of [
  ['nodes fail', 'Fail nodes', 'general-03'],
  ['a zone fails', 'Fail zones', 'eu-1b'],
  ['nodes are added', 'Add copies of nodes', '2xgeneral-00'],
  ['a controller is scaled', 'Scale', 'deployment/web=80'],
  ['a controller is removed', 'Remove', 'deployment/batch'],
]) {
  test(`${name} in the simulation`, () =>
    visit(address, '#/what-if', {}, async (page, check) => {
      await page.getByLabel(label, { exact: true }).fill(value);
      await page.keyboard.press('Enter');
      await headline(page).waitFor();
      await check(`what-if-${label.toLowerCase().replaceAll(' ', '-')}`);
    }));
}

test('nodes that can be removed are found', () =>
  visit(address, '#/what-if', {}, async (page, check) => {
    await page.getByLabel(/Consolidate/).check();
    await page.getByRole('button', { name: 'Ask' }).click();
    await page
      .getByText(/can be removed/)
      .first()
      .waitFor();
    await check('what-if-consolidate');
  }));

test('the answer is in view on a narrow screen', () =>
  visit(address, '#/what-if', { size: NARROW }, async (page, check) => {
    await drain(page, 'general-01');
    await until(
      () => headline(page).evaluate((it) => it.getBoundingClientRect().top),
      (top) => top < 740,
      'the headline is in view',
    );
    await check('what-if-narrow');
  }));

const asked = (question) => `#/what-if?ask=${encodeURIComponent(JSON.stringify(question))}`;

test('a question whose list is a text is asked, and fills the form', () =>
  visit(address, asked({ drain: 'general-01' }), {}, async (page) => {
    await page.getByRole('heading', { name: 'drain general-01', exact: true }).waitFor();
    await headline(page).waitFor();
    assert.equal(await page.getByLabel('Drain nodes').inputValue(), 'general-01');
  }));

test('an address whose question is a list is refused', () =>
  visit(address, asked([{ drain: ['general-01'] }]), {}, async (page, check) => {
    await page.getByRole('alert').getByText('The address has no question').waitFor();
    await check('what-if-no-question');
  }));

test('a selector with blanks is one entry of a list', () =>
  visit(address, '#/what-if', {}, async (page) => {
    await page.getByLabel('Fail nodes').fill('pool in (memory, gpu)  general-03');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'fail pool in (memory, gpu), general-03' }).waitFor();
    await headline(page).waitFor();
    assert.deepEqual(JSON.parse(new URLSearchParams(page.url().split('?')[1]).get('ask')).fail_node, [
      'pool in (memory, gpu)',
      'general-03',
    ]);
  }));

for (const [name, force, expected] of [
  ['counts', false, 'harmed/c and 2 more'],
  ['does not count', true, 'harmed/a, harmed/b'],
]) {
  test(`a failure ${name} lost pods ${force ? 'whose loss is accepted' : 'as harmed'}`, () =>
    visit(address, 'page/page.css', {}, async (page) => {
      const failure = {
        name: 'z1',
        nodes: ['n'],
        during: ['harmed/a'],
        after: ['harmed/b'],
        lost: ['harmed/c'],
      };
      const each = { failures: [failure], harmful: 1, nodes_without_zone: 2 };
      await replaced(page, 'what-if', (found) => ({ ...found, each }));
      await page.goto(new URL(asked({ each: 'zone', ...(force && { force }) }), address).href);
      await page
        .getByRole('table', { name: /Failures/ })
        .getByText(expected, { exact: true })
        .waitFor();
      await page.getByText('2 nodes without a zone did not fail.').waitFor();
    }));
}

test('failures without harm are only in the first line', () =>
  visit(address, 'page/page.css', {}, async (page) => {
    const each = { failures: [], harmful: 0, nodes_without_zone: 1 };
    await replaced(page, 'what-if', (found) => ({ ...found, each }));
    await page.goto(new URL(asked({ each: 'zone' }), address).href);
    await page.getByText('1 node without a zone did not fail.').waitFor();
    assert.equal(await page.locator('.headline:visible').count(), 1);
    assert.equal(await page.getByRole('table', { name: /Failures/ }).count(), 0);
  }));

test('nodes are chosen on a map, and the field and the link have their names', () =>
  visit(address, '#/what-if', { size: NARROW }, async (page, check) => {
    await page.getByText('Choose nodes on a map').click();
    const map = page.getByRole('application', { name: /Map of 36 nodes to choose from/ });
    await map.waitFor();
    await map.scrollIntoViewIfNeeded();
    await check('what-if-map');
    const { x, y, width, height } = await map.boundingBox();
    // The upper half: the first zones.
    const corners = [[0.98, 0.03], [0.98, 0.5], [0.02, 0.5], [0.02, 0.03]];
    await page.mouse.move(x + 0.02 * width, y + 0.03 * height);
    await page.mouse.down();
    for (const [right, down] of corners)
      await page.mouse.move(x + right * width, y + down * height, { steps: 6 });
    await page.mouse.up();
    const field = page.getByLabel('Drain nodes');
    const names = (await until(() => field.inputValue(), (text) => text !== '', 'the field has names')).split(' ');
    const { nodes } = await ask(address, 'nodes');
    assert.ok(names.length > 2 && names.length < 36, `${names.length} nodes`);
    assert.ok(names.every((name) => nodes.some((node) => node.name === name)));
    const draft = () => JSON.parse(new URLSearchParams(page.url().split('?')[1]).get('draft'));
    assert.deepEqual(draft(), { drain: names });
    // The keyboard does the same.
    await map.focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press(' ');
    await until(() => field.inputValue(), (text) => text.split(' ').length !== names.length, 'one differs');
    await page.getByLabel('Nodes to', { exact: true }).selectOption('fail');
    await page.getByText('0 nodes', { exact: true }).waitFor();
    await page.getByLabel('Fail nodes').fill('pool=gpu general-01');
    await page.getByText('1 node', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'None', exact: true }).click();
    assert.equal(await page.getByLabel('Fail nodes').inputValue(), 'pool=gpu');
    await page.reload();
    assert.match(await field.inputValue(), /^\w+-\d\d( |$)/);
  }));
