// The moments of a replay, for people: pods that have arrived, a time since the first arrival, or a date.

import { whole } from './dom.js';

export const MINUTE = 60;
export const HOUR = 3600;
export const DAY = 86_400;

/** The text of a moment: `{ unit, began, at }`, where `began` is a date or null. */
export function moment({ unit, began, at }) {
  if (unit === 'pods') return `${whole(at)} pods arrived`;
  if (!began) return duration(at);
  return `${format(Date.parse(began) / 1000 + at, { dateStyle: 'medium', timeStyle: 'medium' })} UTC`;
}

/** A date and time (UTC) in a style. */
export const format = (seconds, style) =>
  new Intl.DateTimeFormat('en-GB', { ...style, timeZone: 'UTC' }).format(new Date(seconds * 1000));

/** A time in words: 1 d 3 h 20 min. */
export function duration(seconds) {
  let left = Math.round(seconds);
  const parts = [];
  for (const [unit, name] of [
    [DAY, 'd'],
    [HOUR, 'h'],
    [MINUTE, 'min'],
    [1, 's'],
  ]) {
    if (left >= unit) parts.push(`${whole(Math.floor(left / unit))} ${name}`);
    left %= unit;
  }
  return parts.slice(0, 3).join(' ') || '0 s';
}
