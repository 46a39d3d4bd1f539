// Windows of a view as the gateway answers them, and boards that keep the highest revision of each.

const time = text => Date.parse(text);
export const edges = window => ({start: window.start_ms ?? time(window.start), end: window.end_ms ?? time(window.end)});

// One answer of the gateway in the form that the page draws.
export function fromAnswer(data) {
  const release = data.record?.type === 'release' ? data.record : null;
  const refusal = data.record?.type === 'refusal' ? data.record : data.refusal?.record ?? data.refusal ?? null;
  const {start, end} = edges((release ?? refusal ?? data).window);
  const one = {id: `${start}-${end}`, start, end, release, refusal, edition: (release ?? refusal)?.edition ?? 1};
  one.released = data.released ? time(data.released) : null;
  one.refused = refusal ? time(data.refusal?.released ?? data.released) : null;
  one.rows = (release?.items ?? []).map((entry, k) => ({...entry, interval: interval(release, entry, data.intervals?.[k])}));
  one.byItem = new Map(one.rows.map(row => [row.item, row]));
  one.before = release && data.before ? before(release, data.before) : null;
  one.state = state(one);
  return one;
}

// Whether counts decide if the key is shown: not where it stands on a list.
export const byCount = (release, entry) => release.minimum_count !== undefined && (!release.catalogue || entry.new === true);

// The 95 % interval of a shown key. `open`: noise alone may have shown it, only the upper end is known. `bare`: it has no count.
export function interval(release, entry, ends) {
  if (entry.count === undefined) return {low: null, high: null, open: true, none: false, bare: true};
  const half = release.noise_interval_95, {count} = entry, chosen = byCount(release, entry);
  const open = (chosen || release.rank !== undefined) && count < release.two_sided_from;
  const [low, high] = ends ?? [open ? Number(chosen) : count - half, count + half];
  const none = !open && !chosen && count + half <= 0;
  return {low: Math.max(0, low), high: Math.max(0, high), open, none};
}

function before(release, data) {
  const found = Object.entries(data.intervals ?? {}).map(([item, [low, high]]) => {
    const cut = {low: Math.max(0, low), high: Math.max(0, high)};
    return [item, {...cut, open: release.kind === 'histogram' && low === 1 && high !== 1 + 2 * data.noise_interval_95, none: false}];
  });
  return {half: data.noise_interval_95, level: data.level?.name ?? data.level, intervals: new Map(found)};
}

function state({release, refusal}) {
  if (!release) return refusal?.reason === 'lost' ? 'lost' : 'refused';
  if (refusal) return 'sharper_refused';
  if (!release.items.length && release.kind !== 'lookup') return 'empty';
  return release.revision > 1 ? 'sharper' : 'released';
}

// All that is known of one view.
export class Board {
  constructor() {
    this.byId = new Map();
    this.next = null;
    this.loaded = false;
  }

  get windows() {
    return [...this.byId.values()].sort((a, b) => a.end - b.end || a.start - b.start);
  }

  // Put an answer in. Returns the window where it is news, else null.
  take(data) {
    const one = fromAnswer(data), old = this.byId.get(one.id);
    if (old) {
      const known = Math.max(old.release?.revision ?? 0, old.refusal?.revision ?? 0);
      const comes = Math.max(one.release?.revision ?? 0, one.refusal?.revision ?? 0);
      if (comes < known || (comes === known && this.loaded)) return null;
      if (!one.release && old.release) {
        Object.assign(one, {release: old.release, rows: old.rows, byItem: old.byItem, before: old.before, released: old.released});
        one.edition = old.edition;
        one.state = state(one);
      } else if (one.release && old.release && !one.before && one.release.revision > old.release.revision) {
        const intervals = new Map(old.rows.map(row => [row.item, row.interval]));
        one.before = {half: old.release.noise_interval_95, level: old.release.level.name, intervals};
      }
    }
    this.byId.set(one.id, one);
    return one;
  }

  drop(window) {
    const {start, end} = edges(window);
    this.byId.delete(`${start}-${end}`);
  }
}

// Shown keys whose former interval does not meet the new one.
export function missed({rows, before}) {
  return rows.filter(row => {
    const old = before?.intervals.get(row.item);
    return old && (old.high < row.interval.low || row.interval.high < old.low);
  }).map(row => row.item);
}

export function allOverlap(rows) {
  const lows = rows.map(row => row.interval.low), highs = rows.map(row => row.interval.high);
  return rows.length > 1 && Math.max(...lows) <= Math.min(...highs);
}

// Post-processing: how much wider than at 95 % one of `m` intervals is, so that all `m` hold together at 95 %.
const wider = m => Math.log(m / 0.05) / Math.log(20);
const whole = release => release.rank === undefined;
const single = release => (release.panes ?? 1) === 1 && (release.blocks ?? 1) === 1;

// Post-processing: changes between two windows that are larger than the noise of both, all keys together at 95 %.
export function changes(earlier, later) {
  const kept = later.rows.filter(row => !row.interval.open && earlier.byItem.has(row.item) && !earlier.byItem.get(row.item).interval.open);
  const halves = later.release.noise_interval_95 + earlier.release.noise_interval_95;
  const half = Math.ceil(wider(2 * Math.max(1, kept.length)) * halves);
  const all = kept.map(row => ({item: row.item, by: row.count - earlier.byItem.get(row.item).count}));
  const large = all.filter(({by}) => Math.abs(by) > half).sort((a, b) => Math.abs(b.by) - Math.abs(a.by));
  const found = large.map(({item, by}) => ({item, up: by > 0, low: Math.max(1, Math.abs(by) - half), high: Math.abs(by) + half}));
  return {keys: kept.length, found};
}

export const comparable = (a, b) => a.release && b.release && a.edition === b.edition && single(a.release) && single(b.release) && whole(a.release) && whole(b.release);

// Post-processing: ranks that a key of a public list may have, all keys together at 95 %.
export function ranks(one, item) {
  const half = Math.ceil(wider(one.rows.length) * one.release.noise_interval_95), me = one.byItem.get(item);
  const above = one.rows.filter(row => row.count - half > me.count + half).length;
  const below = one.rows.filter(row => row.count + half < me.count - half).length;
  return [above + 1, one.rows.length - below];
}

// Post-processing: a mean over up to 5 windows, the sharper and nearer ones weighing more; never across a gap.
export function smoothed(points) {
  const usable = p => p.row && !p.row.interval.open;
  return points.map((point, k) => {
    if (!usable(point)) return null;
    let sum = 0, weight = 0;
    for (const step of [-1, 1]) {
      for (let j = step < 0 ? k : k + 1; j >= 0 && j < points.length && Math.abs(j - k) <= 2; j += step) {
        if (!usable(points[j]) || points[j].window.edition !== point.window.edition) break;
        const w = (1 - Math.abs(j - k) / 3) / points[j].window.release.noise_interval_95 ** 2;
        sum += w * points[j].row.count;
        weight += w;
      }
    }
    return sum / weight;
  });
}

// By law of the noise: how far from 0 the middle of the k-th of 20 equally likely parts is, k = 0 to 9. Others have no places.
const NORMAL = [1.96, 1.44, 1.15, 0.935, 0.755, 0.598, 0.454, 0.319, 0.189, 0.063];
const laplace = ({scale, largest}, k) => {
  const end = largest === undefined ? 0 : Math.exp(-largest / scale);
  return -scale * Math.log((2 * k + 1) / 20 * (1 - end) + end);
};
const LAWS = {'discrete laplace': laplace, 'truncated discrete laplace': laplace, 'clamped discrete laplace': laplace,
  'discrete gaussian': ({scale}, k) => scale * NORMAL[k]};

// Post-processing: 20 equally likely places of the true number. Of keys that were chosen by their noise there are none.
export function places(release, count) {
  const {noise} = release, law = LAWS[noise?.distribution];
  if (!law || !single(release) || !whole(release) || release.within_95 || count < (noise.largest_count ? 1 : 0)) return null;
  const far = Array.from({length: 10}, (_, k) => law(noise, k));
  return [...far.map(by => count - by), ...far.reverse().map(by => count + by)];
}
