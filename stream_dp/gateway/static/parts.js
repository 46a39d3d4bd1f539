// The parts of a window's page. A count is never text: it is a tick on the bar of its interval.
import {button, card, h, muted} from './dom.js';
import {allOverlap, byCount, changes, comparable, missed} from './model.js';
import {ticks} from './series.js';
import {epsilon, factor, full, inDelta, inEpsilon, length, list, moment, num, span, words} from './words.js';

const SAYS = {
  histogram: unit => `How many ${unit} had each key. Keys that only few had are hidden.`,
  topk: unit => `The keys that most ${unit} had.`,
  gap: unit => `The leading keys of a public list by number of ${unit}, and how sure their order is.`,
  subset: unit => `The keys of a public list that most ${unit} had, as a set.`,
  catalogue: unit => `How many ${unit} had each key of a public list.`,
  pure_topk: unit => `The keys that most ${unit} had, and how many. Keys with small counts are hidden.`,
  lookup: unit => `A table that says for every key how many ${unit} had it. It lists no keys: name some to follow them.`,
  keys: unit => `Which keys enough ${unit} had, without counts.`,
  bounds: unit => `How many ${unit} had 1, 2, ... keys.`,
  running: unit => `How many ${unit} had each key of a public list since the window began.`,
};
export const STATES = {
  released: ['', 'released'], sharper: ['✓', 'released, more precise since'], empty: ['', 'released, nothing to show'],
  refused: ['×', 'refused'], sharper_refused: ['–', 'released; a more precise version was refused'], lost: ['!', 'lost'],
};

export function counted({unit, record}, kind, population) {
  const item = record?.item_meaning ? ` A key is ${record.item_meaning}.` : '';
  const whom = population === unit ? ' Noise protects each single one of them.' : ` Noise protects each single one of these: ${population}.`;
  return h('span', {class: 'muted'}, SAYS[kind]?.(unit) ?? '', item, whom);
}

// How far counts are from the true ones. Of keys that were chosen by their noise that is known for all of them together only.
const precision = ({within_95: all, noise_interval_95: half}) => (all === undefined ? `each count ±${num(half)}` : `all counts together ±${num(all)}`);

export function head(view, one) {
  const {release, before} = one, record = release ?? one.refusal, half = release?.noise_interval_95;
  const chip = (text, tone = '') => h('span', {class: `chip ${tone}`}, text);
  return [h('h1', {}, view.title),
    h('p', {class: 'lead-in'}, h('strong', {}, span(one)), ` (${record.kind === 'running' ? 'the first ' : ''}${length(one)}). `,
      counted(view, record.kind, record.ledger.population)),
    h('div', {class: 'chips'},
      release && release.kind !== 'keys' && chip(`${precision(release)[0].toUpperCase()}${precision(release).slice(1)}, 95 % sure`),
      before && chip(`More precise than before: ±${num(half)}, was ±${num(before.half)}`, 'good'),
      one.state === 'sharper_refused' && chip('A more precise version was refused', 'bad'),
      one.state === 'refused' && chip('× Refused', 'bad'), one.state === 'lost' && chip('! Lost', 'bad'),
      release && one.released && chip(`Released ${moment(one.released)}`))];
}

export function strip(windows, at, {go, more}) {
  const step = k => windows[k] && go({window: windows[k].id});
  const keys = e => {
    const to = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: windows.length - 1}[e.key];
    if (to === undefined || !windows[to]) return;
    e.preventDefault();
    go({window: windows[to].id, focus: 'window'});
  };
  const used = Object.keys(STATES).filter(s => windows.some(w => w.state === s));
  const bars = windows.map((w, k) => button(STATES[w.state][0], () => step(k), {
    'data-s': w.state, 'data-id': w.id, id: k === at && 'window', 'aria-pressed': String(k === at), tabindex: k === at ? 0 : -1,
    'aria-label': `${span(w)}: ${STATES[w.state][1]}`, onkeydown: keys}));
  return h('div', {}, h('div', {class: 'steps'},
    more && at === 0 ? button('‹ Load earlier', more, {id: 'earlier'}) : button('‹ Earlier', () => step(at - 1), {id: 'earlier', disabled: at === 0}),
    h('div', {class: 'strip', role: 'group', 'aria-label': 'Windows; the arrow keys move between them'}, bars),
    button('Later ›', () => step(at + 1), {id: 'later', disabled: at === windows.length - 1}),
    button('Newest', () => go({window: null}), {id: 'newest', disabled: at === windows.length - 1})),
  h('div', {class: 'legend', 'aria-hidden': 'true'}, used.map(s => h('span', {}, h('i', {class: 'key b', 'data-s': s}, STATES[s][0]), STATES[s][1]))));
}

const shownFrom = release => release.minimum_count;

// Bars of intervals. `moved`: former ends by key, from which the bars move to where they are now.
function lane(row, {old, pc, limit, grid, from}) {
  const {low, high, open} = row.interval, ends = from ?? row.interval;
  const bar = h('i', {class: `now ${open ? 'fade' : ''}`, css: {left: pc(ends.low), width: `max(4px, ${pc(ends.high - ends.low)})`}});
  if (from) requestAnimationFrame(() => requestAnimationFrame(() => {
    bar.style.left = pc(low);
    bar.style.width = `max(4px, ${pc(high - low)})`;
  }));
  return h('div', {class: `lane ${old ? '' : 'solo'}`, 'aria-hidden': 'true'},
    limit !== undefined && h('i', {class: 'hid', css: {width: pc(limit)}}), grid?.map(t => h('i', {class: 'grid', css: {left: pc(t)}})),
    old && h('i', {class: 'old', css: {left: pc(old.low), width: pc(old.high - old.low)}}), bar,
    !open && row.count > 0 && h('i', {class: 'dot', css: {left: pc(row.count)}}));
}

function scale(one) {
  const highs = [...one.rows.map(row => row.interval.high), ...one.rows.map(row => one.before?.intervals.get(row.item)?.high ?? 0)];
  const most = Math.max(4, ...highs) * 1.02;
  return {most, pc: v => `${Math.max(0, Math.min(100, v / most * 100))}%`};
}

export function bars(one, {item, unit, all, go, moved}) {
  const {release, before} = one, limit = shownFrom(release), {most, pc} = scale(one), grid = ticks(0, most, most < 1e4 ? 5 : 3);
  const rows = all ? one.rows : one.rows.slice(0, 16), wrong = missed(one), ranked = release.kind === 'topk' && release.selection !== 'fixed-threshold';
  const legend = [['', 'interval now'], before && ['old', `before, ±${num(before.half)}`],
    one.rows.some(row => row.interval.open) && ['fade', 'noise alone may have shown it'], limit !== undefined && one.rows.some(row => byCount(release, row)) && ['hid', 'keys here are hidden']];
  return card('Where the true numbers are, 95 % sure',
    h('div', {class: 'legend', 'aria-hidden': 'true'}, legend.filter(Boolean).map(([name, text]) => h('span', {}, h('i', {class: `key ${name}`}), text))),
    h('ul', {class: 'bars'}, rows.map((row, k) => {
      const old = before?.intervals.get(row.item);
      return h('li', {class: row.item === item && 'chosen'},
        h('div', {class: 'name'}, ranked && h('span', {class: 'muted'}, `${row.rank}. `),
          button(row.item, () => go({item: row.item, focus: `row-${k}`}), {id: `row-${k}`, 'aria-pressed': String(row.item === item)})),
        lane(row, {old, pc, limit: byCount(release, row) ? limit : undefined, grid, from: moved?.get(row.item)}),
        h('div', {class: 'range'}, words(row.interval), row.new && ', new', h('span', {class: 'sr'}, ` ${unit}`, old && `; before: ${words(old)}`)));
    }), h('li', {class: 'axis', 'aria-hidden': 'true'}, h('div'), h('div', {class: 'lane'},
      grid.map((t, k) => h('span', {class: k === 0 ? 'first' : t > 0.9 * most && 'last', css: {left: pc(t)}}, num(t)))), h('div', {class: 'muted'}, unit))),
    wrong.length > 0 && h('p', {class: 'note warn'}, h('strong', {}, list(wrong)), ': The earlier interval missed. About 1 of 20 does; the new one replaces it.'),
    muted(order(one)),
    rows.filter(row => row.left_out_95).map(row => muted(`A bound at the end of bin ${row.item} leaves out ${row.left_out_95.join(' to ')} % of the keys of all.`)),
    one.rows.length > rows.length && button(`Show ${one.rows.length - rows.length} more`, () => go({all: true}), {id: 'more'}),
    release.kind === 'topk' && !release.complete && h('p', {class: 'note'}, `The list ended after ${release.items.length} of ${release.k}: the next ones are too close to tell apart.`),
    release.paid !== undefined && h('p', {class: 'note'}, `The rest of the privacy budget paid for the first ${release.paid} of ${release.k} keys.`),
    release.kind === 'running' && muted('These are totals since the window began. A total may be lower than the one before: each has noise of its own.'));
}

export const names = (one, {item, go}) => card(`Keys, without counts: ${one.rows.length}`, h('ul', {}, one.rows.map((row, k) => h('li', {class: row.item === item && 'chosen'},
  button(row.item, () => go({item: row.item, focus: `row-${k}`}), {id: `row-${k}`, 'aria-pressed': String(row.item === item)})))));

function order({release, rows}) {
  if (release.kind === 'bounds') return null;
  if (release.kind === 'subset' || release.selection === 'fixed-threshold') return 'These keys are in no order.';
  if (allOverlap(rows)) return 'All intervals overlap: the order says nothing.';
  const overlap = 'Bars that overlap may be in another order.';
  if (release.kind === 'topk') return `The order is that of the selection. ${overlap}`;
  return release.kind === 'histogram' || release.rank !== undefined ? `${overlap} Each interval is for its key alone: the key on top is there partly because of its noise.` : overlap;
}

export function leads(one, {unit, item, go, moved}) {
  const {pc} = scale(one);
  return card('Who leads, and how sure that is', h('ol', {class: 'lead'}, one.rows.map((row, k) => {
    const sure = Math.min(99, Math.floor((1 - Number(row.wrong_at_most)) * 100 + 1e-9)), old = one.before?.intervals.get(row.item);
    const [tone, verdict] = sure >= 95 ? ['', 'settled'] : sure >= 80 ? ['mid', 'likely'] : ['low', 'not settled'];
    const next = one.rows[k + 1], claim = ['', ' is first', 'These two are the two largest'][k + 1] ?? `These ${k + 1} are the ${k + 1} largest`;
    const margin = Math.floor(Number(row.margin_95?.decimal ?? 0));
    return h('li', {class: row.item === item && 'chosen'}, h('div', {class: 'rank'}, tone === 'low' ? `${row.rank}?` : row.rank), h('div', {},
      h('div', {class: 'who'}, button(row.item, () => go({item: row.item, focus: `row-${k}`}), {id: `row-${k}`, 'aria-pressed': String(row.item === item)}),
        h('span', {}, `${words(row.interval)} ${unit}`, old && h('span', {class: 'sr'}, `; before: ${words(old)}`))),
      lane(row, {old, pc, from: moved?.get(row.item)}),
      h('div', {class: `sure ${tone}`, 'aria-hidden': 'true'}, h('i', {css: {width: `${Math.max(0, sure)}%`}}), h('u')),
      h('p', {}, h('strong', {}, sure < 50 && 'Cannot be told: ', k === 0 && row.item, claim, sure >= 50 && `: ${sure} % sure`), ` (${verdict}). `,
        h('span', {class: 'muted'}, margin > 0 ? `The lead over ${next ? 'all others' : 'the rest of the list'} is at least ${num(margin)} ${unit}, 95 % sure.`
          : 'The lead is too small to say how large it is at least.'))));
  })), h('details', {id: 'combined'}, h('summary', {}, 'Estimates from counts and leads together'),
    h('ul', {}, one.rows.map(row => h('li', {}, `${row.item}: about ${num(Math.round(row.combined))}; ${words(row.interval)} by its count alone, 95 % sure`))),
    muted(`If the counts are well apart, the mean squared error of such an estimate is ${one.release.combined_error} times that of a count. It has no interval of its own, and is too high for a key that is first by luck.`)),
  muted('“99 % sure” means: if it were not so, a lead as large as this would be seen in at most 1 of 100 windows. The mark is at 95 %.',
    one.before && ' Dashed: the interval before it became more precise. Only the counts become more precise, the leads do not.'));
}

export function empty({release}) {
  if (release.kind === 'lookup') {
    return card('This view lists no keys', h('p', {}, 'It answers for every key that you name, also for one that nobody has: ',
      h('code', {}, `/v1/views/${release.view}/series?item=KEY`), ', or ', h('code', {}, `stream-dp lookup FILE ${release.view} ${release.audience} KEY`), '.'),
    muted(`A key that nobody has gets ${release.absent_mean} on average, so do not add up the answers of many keys.`));
  }
  if (release.catalogue?.keys === 0 && release.kind !== 'histogram') return card('No keys yet', h('p', {}, 'The keys that are counted here are found by another view. None had been found when this window closed.'));
  const limit = shownFrom(release);
  return card('Nothing stands out in this window',
    h('p', {}, limit === undefined ? 'It was released, but no key could be told from the others. ' : 'It was released, but no key reached the limit from which one is shown. ',
      'That does not mean that there was nothing.'), limit !== undefined && limits(release));
}

const limits = ({kind, k, rank, catalogue: known, minimum_count: least, noise_interval_95: half}) => rank !== undefined ? h('p', {},
  `Only the ${rank} keys with the largest noisy counts are shown. No other key had a larger one.`) : kind === 'pure_topk' ? h('p', {},
  `At most ${k} keys are shown, those with the largest counts, from ${num(least)} on. `
  + 'In 95 % of the windows no key that nobody has is shown.') : h('p', {},
  `${known?.keys ? `The ${num(known.keys)} keys that were known before are always shown, and any other` : 'A key is shown'} from ${num(least)} on. `
  + `One with ${num(least + half)} or more would be shown, 97 % sure; `
  + `one with fewer than ${num(Math.max(1, least - half))} would be hidden, 97 % sure.`);

export const hidden = one => card('What is hidden', limits(one.release), one.release.minimum_count !== undefined && muted('How many keys are below is not known to anybody who reads this.'));

export function refusal(one, {windows, go}) {
  const {refusal: why, release} = one, {ledger, requested} = why, period = {start: ledger.period.start_ms, end: ledger.period.end_ms};
  const lost = why.reason === 'lost', at = windows.indexOf(one), released = w => w.release;
  const near = [[windows.slice(0, at).reverse().find(released), 'Before it'], [windows.slice(at + 1).find(released), 'After it']];
  const kept = release && h('p', {}, h('strong', {}, 'Nothing was taken back. '), `What you see stays as it is: level ${release.level.name}, ${precision(release)}.`);
  return card(release ? 'A more precise version was refused' : lost ? 'This window was lost' : 'This window was refused',
    lost ? h('p', {}, 'Counts were lost by a failure of the system; they will not come back.')
      : h('p', {}, `The privacy budget of “${ledger.population}” for ${span(period)} does not cover it. It asked for ${epsilon(requested, ledger.zcdp)}. `
        + `All releases of that period together may cost one of them at most ${epsilon(ledger.budget)}.`),
    kept, !release && h('p', {}, `Nothing was published.${lost ? '' : ` A new budget begins with the next period, on ${full(period.end)}.`} This says nothing about how much there was.`),
    muted(`Asked for: level ${why.level.name}.${one.refused ? ` Decided ${moment(one.refused)}.` : ''}`),
    !release && h('div', {class: 'opts'}, near.map(([w, text]) => w && button(`${text}: ${span(w)}`, () => go({window: w.id})))));
}

export function changed(windows, one, unit) {
  const earlier = windows.slice(0, windows.indexOf(one)).reverse().find(w => w.rows.length);
  if (!earlier || !one.rows.length || !['topk', 'catalogue', 'histogram'].includes(one.release.kind) || !comparable(earlier, one)) return null;
  const {keys, found} = changes(earlier, one);
  if (!keys) return null;
  return card(`What changed since ${span(earlier)}`,
    found.length ? h('ul', {}, found.slice(0, 6).map(({item, up, low, high}) => h('li', {}, h('strong', {}, item), ` ${up ? 'rose' : 'fell'} by ${num(low)} to ${num(high)} ${unit}`)))
      : h('p', {}, 'No change is larger than the noise.'),
    h('p', {class: 'note post'}, h('b', {}, 'Calculated here '), `from the two releases, at no cost in privacy; right for ${keys === 1 ? 'the one key' : `all ${keys} keys together`}, 95 % sure. It assumes nothing else.`));
}

export function loss(one, save) {
  const {privacy, ledger, level} = one.release, period = {start: ledger.period.start_ms, end: ledger.period.end_ms};
  const pool = ledger.zcdp, delta = inDelta(privacy.window, pool);
  const part = Math.min(1, inEpsilon(privacy.period, pool) / Number(ledger.budget.epsilon.decimal));
  const yours = part < 1 ? epsilon(privacy.period, pool) : epsilon(ledger.budget); // no more than what all readers have
  const says = `Your releases of ${span(period)}: ${part < 1 ? '' : 'at most '}${yours}. All readers together: at most ${epsilon(ledger.budget)}.`;
  return card('What this reveals about one of them', h('div', {class: 'meter', role: 'img', 'aria-label': says}, h('i', {css: {width: `${part * 100}%`}})), h('p', {}, says),
    h('p', {}, `This window alone: ${epsilon(privacy.window, pool)}. With or without the data of one of them, whatever you see in this window would be at most ${factor(privacy.window, pool)} times as likely`,
      delta > 0 && `, plus a probability of ${delta.toPrecision(3)}`, '. The smaller ε, the less is revealed.'),
    muted(`Protected: ${ledger.population}. Level ${level.name}.`),
    h('div', {class: 'opts'}, button('Download CSV', () => save('text/csv', 'csv'), {id: 'csv'}), button('Download JSON', () => save('application/json', 'json'), {id: 'json'})));
}

// The same window at each of one's audiences, each asked for with its own credential.
export function compare(all, unit) {
  const rows = [...new Set(all.flatMap(({one}) => one?.rows.slice(0, 12).map(row => row.item) ?? []))].slice(0, 16);
  const most = Math.max(4, ...all.flatMap(({one}) => one?.rows.map(row => row.interval.high) ?? [])) * 1.02, pc = v => `${v / most * 100}%`;
  return card('The same window for your audiences', h('div', {class: 'compare'}, all.map(({audience, one}) => h('section', {},
    h('h3', {}, audience), muted(one?.release ? `Level ${one.release.level.name}, ${precision(one.release)}` : one ? STATES[one.state][1] : 'nothing for this window'),
    one?.release && h('ul', {class: 'bars'}, rows.map(item => {
      const row = one.byItem.get(item);
      return h('li', {}, h('div', {class: 'name'}, item), row ? lane(row, {pc}) : h('div', {class: 'lane'}), h('div', {class: 'range'}, row ? `${words(row.interval)}` : 'not shown'));
    }))))), muted(`Number of ${unit}. The most precise one contains all that the others say: use it alone, not a mean.`));
}
