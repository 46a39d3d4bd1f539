// How the application stands: problems, budgets, what is to come, how it runs.
import uPlot from './vendor/uPlot.esm.js';
import {card, color, h, muted} from './dom.js';
import {clock, day, full, list, moment, num} from './words.js';

const DAY_MS = 864e5;
export const several = (n, word) => `${num(n)} ${word}${n === 1 ? '' : 's'}`;

// Commands stand between backticks.
export const prose = text => text.split(/`([^`]+)`/).map((part, k) => (k % 2 ? h('code', {}, part) : part));

// A moment as short as it may be: the date alone at midnight.
export const at = ms => (ms === null || ms === undefined ? '' : ms % DAY_MS ? moment(ms) : full(ms));

// `head`: titles; one that begins with # is of numbers.
export function table(label, head, rows) {
  const is = head.map(title => title[0] === '#' && 'num');
  return h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': label}, h('table', {class: 'lines', css: {'min-width': `${head.length * 5}rem`}},
    h('thead', {}, h('tr', {}, head.map((title, k) => (title ? h('th', {scope: 'col', class: is[k]}, title.replace('#', '')) : h('td'))))),
    h('tbody', {}, rows.map(row => h('tr', {}, row.map((cell, k) => h('td', {class: is[k]}, cell)))))));
}

export const tile = (label, value, ...below) => h('div', {class: 'tile'}, h('small', {}, label), h('b', {}, value), h('small', {}, below));

// -- problems --------------------------------------------------------------------------------------------------------

const AREAS = {
  workers: {codes: /worker|partition|member|rebalancing|clock|topic/, helps: ['#runs', 'Workers'], fine: 'Workers are ready and every partition has one.'},
  views: {codes: /behind/, helps: ['#runs', 'Views'], fine: 'No view is late.'},
  records: {codes: /records/, helps: ['#runs', 'Sources'], fine: 'No records were lost.'},
  budgets: {codes: /budget/, helps: ['#tune', 'Tune a view'], fine: 'Every budget lasts to the end of its period.'},
};
const areaOf = code => Object.keys(AREAS).find(name => AREAS[name].codes.test(code.replace('worker_behind', 'worker')));

export function newest(ledgers) {
  const found = new Map();
  for (const one of ledgers) if (!(found.get(one.ledger)?.period.start_ms > one.period.start_ms)) found.set(one.ledger, one);
  return [...found.values()];
}

function short({ledger, period, affords}) {
  const until = affords.all_views_until_ms, early = period.end_ms - until;
  const views = Object.entries(affords.views).filter(([, view]) => view.windows_afforded < view.windows_to_come).map(([name]) => name);
  const before = early >= DAY_MS ? ` ${several(Math.floor(early / DAY_MS), 'day')} before its period ends.` : ' before its period ends.';
  return {what: `Budget ${ledger} pays for all views until ${at(until)},${before}`, rest: ` Later windows of ${list(views)} may be refused. `, helps: ['#tune', 'See what would help']};
}

// `may`: whether one may tune.
export function problems({status, ledgers}, may) {
  const items = status.problems.map(({code, message}) => {
    const [what, ...rest] = message.split(/(?<=[.:]) /), area = areaOf(code);
    return {bad: true, what, rest: ` ${rest.join(' ')} `, area, helps: AREAS[area]?.helps ?? ['#runs', 'How it runs']};
  });
  const tight = newest(ledgers).filter(one => one.affords.state === 'short').map(one => ({...short(one), area: 'budgets'}));
  const refused = newest(ledgers).flatMap(({ledger, spent_by: by}) => {
    const views = [...new Set(by.filter(one => one.refused).map(one => one.view))];
    return views.length ? [{what: `Windows of ${list(views)} were refused in this period of ${ledger}.`, rest: ' ', helps: ['#refusals', 'Refusals'], area: 'refusals'}] : [];
  });
  const all = [...items, ...tight, ...refused], areas = new Set(all.map(one => one.area));
  const fine = Object.keys(AREAS).filter(name => !areas.has(name) && (name !== 'budgets' || ledgers.length)).map(name => AREAS[name].fine);
  const help = ([href, text]) => (href === '#tune' && !may ? h('a', {href: '#budgets'}, 'Budgets') : h('a', {href}, text));
  const row = ({bad, what, rest, helps}) => h('li', {class: bad && 'bad'}, h('b', {'aria-hidden': 'true'}, '!'),
    h('div', {}, h('strong', {}, prose(what)), prose(rest), help(helps)));
  const well = fine.length > 0 && h('li', {class: 'ok'}, h('b', {'aria-hidden': 'true'}, '✓'),
    h('div', {}, !all.length && h('strong', {}, 'All is well. '), fine.join(' ')));
  return card(all.length ? 'What needs you' : 'Nothing to do', h('ul', {class: 'todo'}, all.map(row), well));
}

// -- budgets ---------------------------------------------------------------------------------------------------------

const ENTRIES = {epsilon: 'epsilon', delta: 'delta', rho: 'the pool of counts and selections'};
const value = (cost, entry) => Number(cost[entry]?.decimal ?? 0);
const share = (one, entry) => Math.floor(100 * value(one.left, entry) / value(one.budget, entry) + 1e-9);
const shown = cost => Object.entries(cost).filter(([, amount]) => amount && amount.exact !== '0')
  .map(([entry, amount]) => `${{epsilon: 'ε', delta: 'δ'}[entry] ?? entry}\u00a0${amount.decimal}`).join(', ') || '0';
// To four digits, for the eye: what is spent up, what is left down.
export const rounded = (text, round = Math.ceil) => {
  const n = Number(text), unit = 10 ** (Math.floor(Math.log10(n)) - 3);
  return n > 0 ? String(Number((round(n / unit + (round === Math.ceil ? -1e-6 : 1e-6)) * unit).toPrecision(4))) : '0';
};
const brief = (cost, round) => `ε\u00a0${rounded(cost.epsilon.decimal, round)}`;

export function budget(periods, chosen, choose) {
  const one = periods.find(each => each.period.start_ms === chosen) ?? periods.at(-1), {affords, period, ledger} = one;
  const entries = Object.keys(one.budget).filter(entry => value(one.budget, entry) > 0);
  const scarce = entries.reduce((a, b) => (share(one, b) < share(one, a) ? b : a)), is_new = one === periods.at(-1);
  const whole = affords.state === 'whole', until = affords.all_views_until_ms;
  const paid = whole ? 'to its end' : affords.state === 'exhausted' ? 'no longer' : at(until);
  const box = h('div', {class: 'plot', role: 'img', 'aria-label': `Budget ${ledger}, window by window: ${share(one, scarce)} % of ${ENTRIES[scarce]} is left. The table below says the same.`});
  const steps = burn(one, scarce);
  queueMicrotask(() => burnDown(box, one, steps, is_new ? until : null));
  return h('section', {class: 'card', id: `ledger-${ledger}`}, h('h2', {}, `Budget ${ledger}`, h('small', {}, ` ${at(period.start_ms)} to ${at(period.end_ms)}`)),
    periods.length > 1 && h('div', {class: 'opts'}, h('label', {}, 'Period ', h('select', {id: `period-${ledger}`, onchange: event => choose(Number(event.target.value))},
      [...periods].reverse().map(each => h('option', {value: each.period.start_ms, selected: each === one}, `from ${at(each.period.start_ms)}`))))),
    h('div', {class: 'tiles'}, tile('Left', `${share(one, scarce)} %`, `of ${ENTRIES[scarce]}: ${rounded(one.left[scarce].decimal, Math.floor)} of ${one.budget[scarce].decimal}`),
      is_new && tile('All views are paid', whole ? paid : affords.state === 'exhausted' ? paid : `until ${paid}`, `the period ends ${at(period.end_ms)}`),
      tile('Protects', `each of ${one.population}`, `in total ${shown(one.promise)} per period, all views and audiences`)),
    box, h('div', {class: 'legend', 'aria-hidden': 'true'}, h('span', {}, h('i', {class: 'key'}), 'left after each window'),
      is_new && h('span', {}, h('i', {class: 'key steps'}), 'at the present levels, at worst'), is_new && !whole && h('span', {}, h('i', {class: 'key stop'}), 'first window that is not paid')),
    h('details', {id: `steps-${ledger}`}, h('summary', {}, 'As a table'), table(`Budget ${ledger}: what is left after each window`, ['Windows that end', `#Left of ${ENTRIES[scarce]}`],
      steps.done.slice(1).map(([ms, left]) => [at(ms), `${(100 * left).toFixed(1)} %`]))),
    h('h3', {}, 'By view'), table(`Budget ${ledger} by view`, ['View', '#Spent', '#May still take', ...(is_new ? ['#Windows paid', 'Until'] : [])], Object.entries(affords.views).map(([name, view]) => [
      name, brief(view.spent), brief(view.left, Math.floor), ...(is_new ? [`${num(Math.min(view.windows_afforded, view.windows_to_come))} of ${num(view.windows_to_come)}`,
        view.windows_afforded < view.windows_to_come ? h('span', {class: 'up'}, at(view.until_ms)) : 'the end'] : [])])),
    h('details', {id: `readers-${ledger}`}, h('summary', {}, 'By audience'), table(`Budget ${ledger} by audience`, ['View', 'For', '#Windows', '#Refused', '#Added to what was spent', '#Loss by this audience alone'],
      one.spent_by.map(by => [by.view, by.audience, num(by.windows), num(by.refused), shown(by.charged), shown(by.loss)])),
    one.spent_without_entry.epsilon.exact !== '0' && muted(`Spent, without an entry that is still kept: ${shown(one.spent_without_entry)}.`)));
}

/* Steps by the window of each charge, not by the order of entries: where one view runs ahead, all else falls into place.
   For the eye only; every number in words comes from the console. */
function burn({budget: caps, history, period, affords}, entry) {
  const whole = value(caps, entry), falls = new Map();
  let before = whole;
  for (const {window_end_ms: end, left} of history) {
    falls.set(end, (falls.get(end) ?? 0) + before - value(left, entry));
    before = value(left, entry);
  }
  const line = (start, left, charges) => {
    const points = [[start, left]];
    for (const [ms, fall] of [...charges].sort((a, b) => a[0] - b[0])) points.push([ms, left = Math.max(0, left - fall / whole)]);
    return points;
  };
  const done = line(period.start_ms, 1, falls), from = done.at(-1)[0], planned = new Map();
  for (const view of Object.values(affords.views)) {
    const each = (period.end_ms - from) / view.windows_to_come;
    for (let k = 1; k <= Math.min(view.windows_afforded, view.windows_to_come, 400); k++) {
      const end = Math.round(from + k * each);
      planned.set(end, (planned.get(end) ?? 0) + value(view.window_costs_at_worst, entry));
    }
  }
  return {done, planned: line(from, done.at(-1)[1], planned)};
}

const dates = (_, splits) => splits.map((t, k) => {
  const year = new Date(t * 1e3).getUTCFullYear();
  return day(t * 1e3) + (k === 0 || new Date(splits[k - 1] * 1e3).getUTCFullYear() !== year ? `\n${year}` : '');
});

function burnDown(box, {period}, {done, planned}, until) {
  if (!box.isConnected) return;
  const xs = [...new Set([...done, ...planned].map(([ms]) => ms).concat(period.end_ms))].sort((a, b) => a - b);
  const column = points => { const by = new Map(points); return xs.map(ms => (by.has(ms) ? 100 * by.get(ms) : undefined)); };
  const stepped = uPlot.paths.stepped({align: 1}), ink = color('--muted'), line = color('--line'), font = '12px system-ui, sans-serif';
  const stop = until !== null && until < period.end_ms ? until : null, short = period.end_ms - period.start_ms < 4 * DAY_MS;
  const mark = u => {
    if (stop === null) return;
    const c = u.ctx, r = devicePixelRatio, x = u.valToPos(stop / 1e3, 'x', true), left = x > u.bbox.left + u.bbox.width / 2;
    c.save();
    c.strokeStyle = c.fillStyle = color('--bad');
    c.lineWidth = 2 * r;
    c.setLineDash([2 * r, 4 * r]);
    c.beginPath(); c.moveTo(x, u.bbox.top); c.lineTo(x, u.bbox.top + u.bbox.height); c.stroke();
    c.font = `${12 * r}px system-ui, sans-serif`;
    c.textAlign = left ? 'right' : 'left';
    c.fillText(`${day(stop)}: first unpaid`, x + (left ? -6 : 6) * r, u.bbox.top + 11 * r);
    c.restore();
  };
  new uPlot({
    width: box.clientWidth, height: 240, legend: {show: false}, cursor: {show: false}, padding: [12, 14, 0, 0],
    tzDate: t => uPlot.tzDate(new Date(t * 1e3), 'Etc/UTC'), scales: {x: {time: true}, y: {range: [0, 104]}},
    axes: [{stroke: ink, grid: {show: false}, ticks: {stroke: line}, font, space: 64, ...(short ? {} : {values: dates})},
      {stroke: ink, grid: {stroke: line}, ticks: {show: false}, size: 52, font, values: (_, splits) => splits.map(v => `${v} %`)}],
    series: [{}, {stroke: color('--plot'), fill: color('--band'), width: 2.5, points: {show: false}, paths: stepped},
      {stroke: color('--plot'), width: 2, dash: [5, 5], points: {show: false}, paths: stepped}],
    hooks: {draw: [mark]},
  }, [xs.map(ms => ms / 1e3), column(done), column(planned)], box);
}

export function refusals(ledgers) {
  const rows = ledgers.flatMap(({ledger, period, spent_by: by}) => [...new Set(by.map(one => one.view))].map(view => {
    const some = by.filter(one => one.view === view && one.refused);
    return some.length && [`${ledger}, from ${at(period.start_ms)}`, view, some.map(one => `${one.audience} ${num(one.refused)}`).join(', ')];
  })).filter(Boolean).reverse();
  return h('section', {class: 'card', id: 'refusals'}, h('h2', {}, 'Refusals'), rows.length ? table('Refused windows by period and view', ['Period', 'View', 'Windows refused to'], rows)
    : muted('No window was refused in the periods that are kept.'));
}

// -- how it runs -----------------------------------------------------------------------------------------------------

export function toCome({status}) {
  return card('To come', status.to_come.length ? table('To come', ['When', 'View', 'What'], status.to_come.map(one => [
    h('span', {}, at(one.at_ms), one.clock === 'event' && h('span', {class: 'muted'}, ' stream time')), one.view, prose(one.what)]))
    : muted('Nothing is planned.'));
}

const state = worker => (worker.silent ? `silent since ${clock(worker.reported_ms)}` : worker.waiting_for ? `waits for ${worker.waiting_for}` : 'ready');

export function runs({status}) {
  const lag = Object.entries(status.lag).map(([source, by]) => {
    const all = Object.entries(by), most = all.reduce((a, b) => (b[1] > a[1] ? b : a), ['', 0]);
    return [source, num(all.reduce((sum, [, n]) => sum + n, 0)), most[1] ? `partition ${most[0]} (${num(most[1])})` : ''];
  });
  const views = Object.entries(status.views).map(([name, view]) => {
    const clocks = Object.entries(view.clocks_ms).sort((a, b) => b[1] - a[1]), last = clocks.at(-1);
    const behind = last && last[1] < clocks[0][1] && h('div', {class: 'muted'}, `partition ${last[0]}: ${at(last[1])}`);
    const due = view.next_due_ms === null ? '' : view.next_due_ms < status.at_ms ? h('span', {class: 'up'}, `overdue since ${at(view.next_due_ms)}`) : at(view.next_due_ms);
    return [name, at(view.released_to_ms), [view.open_windows ?? '', view.waiting_windows > 0 && h('div', {class: 'muted'}, `${num(view.waiting_windows)} wait`)],
      h('span', {}, clocks.length ? at(clocks[0][1]) : '', behind), due];
  });
  const totals = Object.entries(status.totals).map(([name, n]) => {
    const [what, labels = ''] = name.split('{');
    return [what.replaceAll('_', ' '), labels.replace('}', '').replaceAll(',', ', '), num(n)];
  });
  const exact = muted('Exact: for operators only.'), alone = status.partitions_without_a_worker;
  return h('section', {class: 'card', id: 'runs'}, h('h2', {}, 'How it runs'), h('div', {class: 'two'}, h('div', {},
    h('h3', {}, 'Workers'), status.workers.length ? table('Workers', ['Worker', 'State', 'Partitions', '#Settings', 'Version', 'Since'], status.workers.map(one => [
      one.instance, state(one), one.partitions.join(', ') || 'none', one.settings || '', one.version, at(one.started_ms)])) : muted('No worker runs.'),
    alone.length > 0 && muted(`Partitions without a worker: ${alone.join(', ')}.`),
    h('h3', {}, 'Views'), table('Views', ['View', 'Released up to', '#Open windows', 'Clock', 'Next due'], views)), h('div', {},
    h('h3', {}, 'Records to be counted'), table('Records to be counted', ['Source', '#Records', 'Most in'], lag), exact,
    h('details', {id: 'counters'}, h('summary', {}, 'Counters since the first record'), table('Counters', ['Counter', 'Of', '#Total'], totals), exact.cloneNode(true)))));
}

export function history({settings, editions}) {
  const rows = [...settings].reverse().map(one => [String(one.number), at(one.at_ms), one.note,
    one.changed.length ? h('ul', {class: 'plain'}, one.changed.map(made => h('li', {}, change(made)))) : 'the first']);
  return h('section', {class: 'card', id: 'history'}, h('h2', {}, 'Settings so far'), table('Settings so far', ['#No.', 'Posted', 'Note', 'Changes'], rows),
    h('details', {id: 'editions'}, h('summary', {}, 'Editions of views'), table('Editions of views', ['View', '#Edition', '#Settings', 'From the window of'],
      editions.map(one => [one.view, one.edition, one.settings, one.never_holds ? 'never in effect' : at(one.from_ms)]))));
}

export const change = ({path, change: kind, before, after}) => (kind === 'changed' ? `${path} ${before ?? 'none'} → ${after ?? 'none'}`
  : `${path} ${kind === 'added' ? 'is new' : 'is gone'}${after ?? before ? `: ${after ?? before}` : ''}`);
