// A page in Chromium that fails its test on anything that a person must not meet.
//
// A test fails on an error of the console or of a script, on a request to another origin, on text beyond the right edge,
// on an empty canvas, and on serious findings of axe. The first three are watched all the time, the others when the test
// calls `check`, which also takes a screenshot.

import assert from 'node:assert/strict';
import { accessSync, constants, mkdirSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { after } from 'node:test';
import axe from 'axe-core';
import { chromium } from 'playwright-core';

const { SCREENSHOTS = 'screenshots', PAGE, CHROMIUM = 'chromium' } = process.env;

/** The widths that are tested: a telephone and a desk. */
export const NARROW = { width: 360, height: 740 };
export const WIDE = { width: 1400, height: 900 };

/** Milliseconds until an expectation fails. A debug build on a busy machine is slow, and a wait that succeeds is short. */
const PATIENCE = 30_000;

let browser;
after(async () => (await browser)?.close());

function launched() {
  // The sandbox of Chromium does not work for root.
  const args = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  browser ??= chromium.launch({ executablePath: path(CHROMIUM), args });
  return browser;
}

/** The absolute path of a command. */
function path(command) {
  const folders = command.includes('/') ? [''] : (process.env.PATH ?? '').split(delimiter);
  const found = folders
    .map((folder) => join(folder, command))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
  assert.ok(found, `${command} is not installed: set CHROMIUM to the path of Chromium`);
  return found;
}

/**
 * Opens the page at `address` with a fragment such as `#/fleet`, and gives it to `use(page, check)`.
 *
 * `check(name)` checks what is shown at this moment, and keeps a screenshot of this name. `expected` matches errors of
 * the console that the test provokes.
 */
export async function visit(address, fragment, { size = WIDE, scheme = 'light', expected, init } = {}, use) {
  const context = await (
    await launched()
  ).newContext({
    viewport: size,
    colorScheme: scheme,
    locale: 'en-GB',
    timezoneId: 'UTC',
    reducedMotion: 'reduce',
    ignoreHTTPSErrors: true, // The certificate of a test is signed by nobody.
  });
  context.setDefaultTimeout(PATIENCE);
  const faults = [];
  const page = await context.newPage();
  page.on('console', (message) => {
    if (message.type() === 'error' && !expected?.test(message.text()))
      faults.push(`console: ${message.text()} (${message.location().url})`);
  });
  page.on('pageerror', (error) => faults.push(`script: ${error.stack}`));
  page.on('dialog', (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on('request', (request) => {
    const { protocol, origin, pathname } = new URL(request.url());
    // A page in a file loads nothing.
    const isOwn = address.protocol === 'file:' ? pathname === address.pathname : origin === address.origin;
    if (protocol !== 'data:' && !isOwn) faults.push(`request to ${request.url()}`);
  });
  if (init) await page.addInitScript(init);
  if (PAGE) await replace(page);
  try {
    await page.goto(new URL(fragment, address).href);
    await use(page, (name) => check(page, name));
    assert.deepEqual(faults, [], 'the page has no faults');
  } catch (error) {
    await page.screenshot({ path: file(`failed-${Date.now()}`) }).catch(() => {});
    for (const fault of faults) console.error(fault);
    throw error;
  } finally {
    await context.close();
  }
}

/** Shows the page's files in the folder `PAGE` instead of those in the program, so that a change needs no build. */
async function replace(page) {
  const kinds = { html: 'text/html', css: 'text/css', js: 'text/javascript' };
  await page.route(/\/(page\/[\w.-]+)?$/, async (route) => {
    const name = new URL(route.request().url()).pathname.split('/').pop() || 'index.html';
    const response = await route.fetch().catch(() => null);
    if (!response) return route.abort();
    const headers = { ...response.headers(), 'content-type': kinds[name.split('.').pop()] };
    return route.fulfill({ status: 200, headers, path: join(PAGE, name) });
  });
}

/** Keeps a screenshot, and returns its path. */
export async function screenshot(page, name) {
  const path = file(name);
  await page.screenshot({ path });
  return path;
}

function file(name) {
  mkdirSync(SCREENSHOTS, { recursive: true });
  return join(SCREENSHOTS, `${name}.png`);
}

/** Fails if what is shown cannot be read or used. */
async function check(page, name) {
  await settle(page);
  await screenshot(page, name);
  const found = {
    'text beyond an edge': await page.evaluate(overflowing),
    'empty canvases': await page.evaluate(emptyCanvases),
    'serious findings of axe': await violations(page),
  };
  const faults = Object.entries(found).flatMap(([kind, all]) =>
    all.map((fault) => `${name}: ${kind}: ${fault}`),
  );
  assert.equal(faults.join('\n'), '');
}

/** Waits until no question is open and the frame with the answer is drawn. */
export async function settle(page) {
  await page.waitForFunction(() => !document.querySelector('[aria-busy=true], .loading'));
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}

/** The texts beyond the right or left edge that no part of the page scrolls or cuts. Runs in the page. */
function overflowing() {
  const width = document.documentElement.clientWidth;
  const found =
    document.documentElement.scrollWidth > width
      ? [`the document is ${document.documentElement.scrollWidth} px wide, the window ${width} px`]
      : [];
  const isCut = (element) => {
    for (let at = element; at && at !== document.body; at = at.parentElement) {
      if (getComputedStyle(at).overflowX !== 'visible') return true;
    }
    return false;
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    const range = document.createRange();
    range.selectNodeContents(text);
    const isBeyond = [...range.getClientRects()].some(
      (it) => it.width > 0 && (it.right > width + 0.5 || it.left < -0.5),
    );
    if (
      isBeyond &&
      text.data.trim() &&
      text.parentElement.closest('.skip') === null &&
      !isCut(text.parentElement)
    ) {
      found.push(text.data.trim().slice(0, 80));
    }
  }
  return found;
}

/** The visible canvases with a single color, and the swatches of a legend without any. Runs in the page. */
function emptyCanvases() {
  const isEmpty = (canvas) => {
    const { width, height } = canvas;
    if (!width || !height) return true;
    const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, width, height).data.buffer);
    const isSwatch = canvas.getAttribute('aria-hidden') === 'true';
    return pixels.every((pixel) => pixel === (isSwatch ? 0 : pixels[0]));
  };
  const visible = [...document.querySelectorAll('canvas')].filter((canvas) => canvas.checkVisibility());
  return visible
    .filter(isEmpty)
    .map((canvas) => canvas.getAttribute('aria-label') ?? canvas.parentElement.textContent);
}

/** The serious and critical findings of axe. */
async function violations(page) {
  // The policy of the page excludes a script element, but not the debugger.
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(axe.source);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
  const serious = found.violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  return serious.map(
    ({ id, nodes }) =>
      `${id}: ${nodes.map(({ html, failureSummary }) => `${html.slice(0, 200)} ${failureSummary}`).join('; ')}`,
  );
}

/** Answers the questions to a path of the API as `change(answer)` returns, or with a problem of another status. */
export async function replaced(page, path, change, status = 200) {
  await page.route(new RegExp(`/api/v1/${path}([?]|$)`), async (route) => {
    const answer = status === 200 ? await (await route.fetch()).json() : {};
    await route.fulfill({ status, json: change(answer) });
  });
}

/** Hides the tab from the page, or shows it again. Runs in the page. */
export function hide(isHidden) {
  Object.defineProperty(document, 'hidden', { configurable: true, value: isHidden });
  document.dispatchEvent(new Event('visibilitychange'));
}

/** Waits until `question()` has an answer that `isExpected`. */
export async function until(question, isExpected, what) {
  const end = Date.now() + PATIENCE;
  let found;
  do {
    found = await question();
    if (isExpected(found)) return found;
    await new Promise((done) => setTimeout(done, 100));
  } while (Date.now() < end);
  assert.fail(`${what}: ${JSON.stringify(found)}`);
}

/** A hash of the pixels of a canvas: pictures with different hashes differ. */
export const picture = (canvas) =>
  canvas.evaluate((it) => {
    const pixels = new Uint32Array(it.getContext('2d').getImageData(0, 0, it.width, it.height).data.buffer);
    return pixels.reduce((hash, pixel) => (Math.imul(hash, 31) + pixel) | 0, 0);
  });
