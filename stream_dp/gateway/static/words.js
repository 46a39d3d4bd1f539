// Words for times, intervals and epsilons.

const format = options => new Intl.DateTimeFormat('en-GB', {timeZone: 'UTC', ...options});
const DAY = format({day: 'numeric', month: 'short'});
const FULL = format({day: 'numeric', month: 'short', year: 'numeric'});
const CLOCK = format({hour: '2-digit', minute: '2-digit'});
const SECONDS = format({hour: '2-digit', minute: '2-digit', second: '2-digit'});
const HOUR = 36e5, A_DAY = 864e5;

export const num = n => n.toLocaleString('en-GB');
export const day = ms => DAY.format(ms);
export const full = ms => FULL.format(ms);
export const clock = ms => `${SECONDS.format(ms)} UTC`;
export const moment = ms => `${FULL.format(ms)}, ${CLOCK.format(ms)} UTC`;

// A window in words: its days where it begins and ends at midnight, else its hours.
export function span({start, end}) {
  if (start % A_DAY === 0 && end % A_DAY === 0) {
    const last = end - 1;
    if (end - start === A_DAY) return full(start);
    const sameYear = new Date(start).getUTCFullYear() === new Date(last).getUTCFullYear();
    return `${sameYear ? day(start) : full(start)} to ${full(last)}`;
  }
  const sameDay = Math.floor(start / A_DAY) === Math.floor((end - 1) / A_DAY);
  return sameDay ? `${full(start)}, ${CLOCK.format(start)} to ${CLOCK.format(end)} UTC` : `${moment(start)} to ${moment(end)}`;
}

export function length({start, end}) {
  const several = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;
  const ms = end - start;
  if (ms % (7 * A_DAY) === 0) return several(ms / (7 * A_DAY), 'week');
  if (ms % A_DAY === 0) return several(ms / A_DAY, 'day');
  if (ms % HOUR === 0) return several(ms / HOUR, 'hour');
  return several(Math.round(ms / 6e4), 'minute');
}

// A moment as short as an address allows: the date alone at midnight.
export const short = ms => new Date(ms).toISOString().replace('.000Z', 'Z').replace('T00:00:00Z', '');
export const iso = ms => new Date(ms).toISOString().replace('.000Z', 'Z');

// An interval in words. `none`: a count of a list whose interval ends at or below 0.
export function words(interval) {
  if (interval.bare) return 'shown';
  if (interval.none) return 'probably none';
  if (interval.open) return `at most ${num(interval.high)}`;
  return `${num(interval.low)} to ${num(interval.high)}`;
}

export function list(names, most = 6) {
  const some = names.slice(0, most);
  if (names.length > most) return `${some.join(', ')} and ${names.length - most} more`;
  return some.length < 2 ? some.join('') : `${some.slice(0, -1).join(', ')} and ${some.at(-1)}`;
}

// Epsilon of a cost: rho is worth so much at the slack of the ledger's pool, which then counts as delta.
export function inEpsilon(cost, pool) {
  const rho = pool && cost.rho ? Number(cost.rho.decimal) : 0;
  return Number(cost.epsilon.decimal) + rho + 2 * Math.sqrt(rho * Math.log(1 / Number(pool?.slack.decimal ?? 1)));
}

export const inDelta = (cost, pool) => Number(cost.delta.decimal) + (pool && cost.rho ? Number(pool.slack.decimal) : 0);

export const epsilon = (cost, pool = null) => `ε\u00a0${pool && cost.rho ? Math.ceil(inEpsilon(cost, pool) * 1000) / 1000 : cost.epsilon.decimal}`;

// What an epsilon means, for the eye: rounded up.
export function factor(cost, pool = null) {
  const f = Math.exp(inEpsilon(cost, pool));
  return f < 10 ? (Math.ceil(f * 100) / 100).toString() : num(Math.ceil(f));
}

export const ordinal = n => {
  const tail = n % 100 > 10 && n % 100 < 14 ? 'th' : ['th', 'st', 'nd', 'rd'][n % 10] ?? 'th';
  return `${n}${tail}`;
};
