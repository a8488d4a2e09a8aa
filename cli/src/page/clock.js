// The horizontal axis of a replay: pods that have arrived, a time since the first arrival, or a date.

import { short } from './dom.js';
import { DAY, format, HOUR, MINUTE, moment } from './moment.js';

/** Steps of an axis of times, in seconds. */
const STEPS = [
  ...[1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((it) => it * MINUTE),
  ...[1, 2, 3, 6, 12].map((it) => it * HOUR),
  ...[1, 2, 7, 14, 30, 90, 180, 360].map((it) => it * DAY),
];

/** Returns the axis of `{ unit, began, end }`, where `began` is a date or null: its name, texts and ticks. */
export function clock({ unit, began, end }) {
  const text = (at) => moment({ unit, began, at });
  if (unit === 'pods') return { end, name: 'pods arrived', text, ticks: (most) => round(end, most) };
  if (!began)
    return { end, name: 'time since the first arrival', text, ticks: (most) => elapsed(end, most) };
  const start = Date.parse(began) / 1000;
  // The ticks of less than a day have no date.
  const day = format(start, { dateStyle: 'medium' });
  return {
    end,
    name: end > DAY ? 'time (UTC)' : `time (UTC), from ${day}`,
    text,
    ticks: (most) => dates(start, end, most),
  };
}

/** Multiples of 1, 2 or 5 times a power of ten up to `end`, at most `most` of them, with their texts. */
export function round(end, most) {
  const least = end / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(Math.max(least, Number.MIN_VALUE)));
  const step = [1, 2, 5, 10].map((it) => it * power).find((it) => it >= least * (1 - 1e-9)) ?? end;
  return multiples(0, end, step).map((at) => [at, short(at)]);
}

function multiples(from, to, step) {
  const found = [];
  for (let at = Math.ceil(from / step); at * step <= to * (1 + 1e-9); at++) found.push(at * step);
  return found;
}

const stepOf = (end, most) => STEPS.find((it) => end / it <= most) ?? end;

function elapsed(end, most) {
  const step = stepOf(end, most);
  const [unit, name] = [
    [DAY, 'd'],
    [HOUR, 'h'],
    [MINUTE, 'min'],
  ].find(([it]) => step % it === 0) ?? [1, 's'];
  return multiples(0, end, step).map((at) => [at, `${short(at / unit)} ${name}`]);
}

function dates(start, end, most) {
  const step = stepOf(end, most);
  const day = { month: 'short', day: 'numeric' };
  const time = { hour: '2-digit', minute: '2-digit', ...(step < MINUTE && { second: '2-digit' }) };
  const style = step >= DAY ? day : end > DAY ? { ...day, ...time } : time;
  return multiples(start, start + end, step).map((at) => [at - start, format(at, style)]);
}
