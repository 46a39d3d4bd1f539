// One key over the windows: a chart, a table that says the same, and 20 places for the true number.
import uPlot from './vendor/uPlot.esm.js';
import {card, color, h, muted, svg} from './dom.js';
import {places, ranks, smoothed} from './model.js';
import {day, num, ordinal, span, words} from './words.js';

// Why a window has no interval of a key, in words.
const without = w => w.release ? (w.release.rank !== undefined ? 'not among the first' : ['histogram', 'keys'].includes(w.release.kind) ? 'hidden' : 'not in the list') : w.state;

export function oneKey(windows, one, {item, unit, smooth, go}) {
  const running = one?.release?.kind === 'running';
  const among = running ? windows.filter(w => w.start === one.start) : windows;
  const points = among.map(w => ({window: w, row: w.byItem.get(item), x: (running ? w.end : (w.start + w.end) / 2) / 1000}));
  const names = [...new Set(windows.flatMap(w => w.rows.map(row => row.item)))];
  const editions = points.filter((p, k) => k && p.window.edition !== points[k - 1].window.edition);
  const box = h('div', {class: 'plot', role: 'img', 'aria-label': `${item}, window by window. The table below says the same.`});
  queueMicrotask(() => chart(box, points, smooth));
  const missing = [...new Set(points.filter(p => !p.row).map(p => without(p.window)))];
  return card(null, h('h2', {}, h('span', {class: 'key-name'}, item), running ? ' since the window began' : ', window by window'),
    h('div', {class: 'opts'},
      h('label', {}, 'Key ', h('select', {id: 'key', onchange: e => go({item: e.target.value})},
        names.map(name => h('option', {value: name, selected: name === item}, name)))),
      h('label', {}, h('input', {type: 'checkbox', id: 'smooth', checked: smooth, onchange: e => go({smooth: e.target.checked})}), 'Smoothed line')),
    box,
    h('div', {class: 'legend', 'aria-hidden': 'true'}, h('span', {}, h('i', {class: 'key'}), '95 % interval'),
      missing.map(text => h('span', {}, `${{refused: '×', lost: '!'}[text] ?? '▽'} ${text}`)),
      smooth && h('span', {}, h('i', {class: 'key dash'}), 'smoothed')),
    editions.map(p => muted(`Vertical line: from ${day(p.window.start)} on counted differently (edition ${p.window.edition}). `
      + 'Do not compare across it.')),
    smooth && h('p', {class: 'note post'}, h('b', {}, 'Calculated here. '), 'The dashed line is a mean over neighbouring windows. '
      + 'It was not released, costs no privacy and has no interval of its own. It assumes that neighbouring windows are alike.'),
    running && muted('A total may be lower than the one before it: each has noise of its own.'),
    table(points),
    where(one, item), rankOf(one, item, unit));
}

function table(points) {
  const head = ['Window', '95 % interval', 'Level'].map((text, k) => h('th', {scope: 'col', class: k === 1 && 'num'}, text));
  return h('details', {id: 'as-table'}, h('summary', {}, 'As a table'), h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Table of windows'},
    h('table', {class: 'lines'}, h('thead', {}, h('tr', {}, head)), h('tbody', {}, [...points].reverse().map(({window: w, row}) => h('tr', {},
      h('td', {}, span(w)), h('td', {class: 'num'}, row ? words(row.interval) : without(w)),
      h('td', {}, w.release?.level.name ?? '')))))));
}

function where(one, item) {
  const row = one?.byItem.get(item), values = row && !row.interval.open && places(one.release, row.count);
  if (!values) return null;
  return h('div', {}, h('h3', {}, 'Where the true number may be'), dots(values, one, row),
    muted(`20 equally likely places for the true number, if nothing else is known. The line is the 95 % interval: ${words(row.interval)}.`,
      values[0] < 0 && ' Places below 0 are drawn at 0.'));
}

function rankOf(one, item, unit) {
  if (one?.release?.kind !== 'catalogue' || one.release.rank !== undefined || !one.byItem.has(item) || one.rows.length < 2) return null;
  const [best, worst] = ranks(one, item), m = one.rows.length;
  const text = best === worst ? `It is ${ordinal(best)} of ${m}.` : `It may be anything from ${ordinal(best)} to ${ordinal(worst)} of ${m} by number of ${unit}.`;
  return h('p', {class: 'note post'}, h('b', {}, 'Calculated here. '), `${text} 95 % sure for all keys together.`);
}

export function ticks(from, until, n = 5) {
  const raw = (until - from) / n, power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = Math.max(1, [1, 2, 5, 10].find(s => s * power >= raw) * power), out = [];
  for (let t = Math.ceil(from / step) * step; t <= until; t += step) out.push(t);
  return out;
}

export function dots(values, {release}, {count, interval}) {
  const half = release.noise_interval_95, W = 460, BASE = 78, from = Math.max(0, count - 1.7 * half), until = Math.max(count + 1.7 * half, from + 8);
  const x = v => 14 + (Math.max(from, v) - from) / (until - from) * (W - 28), bin = (W - 28) / 40, stacks = new Map();
  const picture = svg('svg', {viewBox: `0 0 ${W} 104`, class: 'dots', role: 'img', 'aria-label': `20 places; the 95 % interval is ${words(interval)}`});
  for (const t of ticks(from, until)) {
    picture.append(svg('line', {x1: x(t), x2: x(t), y1: 20, y2: BASE + 4}), svg('text', {x: x(t), y: 98, 'text-anchor': 'middle'}, num(t)));
  }
  picture.append(svg('line', {class: 'interval', x1: x(interval.low), x2: x(interval.high), y1: BASE + 5, y2: BASE + 5}));
  const placed = values.map(v => Math.round((x(v) - 14) / bin));
  const rise = Math.min(bin * 0.98, 70 / Math.max(...placed.map(place => placed.filter(other => other === place).length)));
  for (const place of placed) {
    const n = stacks.get(place) ?? 0;
    stacks.set(place, n + 1);
    picture.append(svg('circle', {cx: 14 + place * bin, cy: BASE - 3 - n * rise, r: bin * 0.44}));
  }
  return picture;
}

// Band and line with a gap at every window without the key and at every new edition.
function columns(points, smooth) {
  const mean = smooth ? smoothed(points) : [], xs = [], lows = [], highs = [], line = [];
  points.forEach((p, k) => {
    if (k && p.window.edition !== points[k - 1].window.edition) {
      xs.push((points[k - 1].x + p.x) / 2); lows.push(null); highs.push(null); line.push(null);
    }
    xs.push(p.x); lows.push(p.row?.interval.low ?? null); highs.push(p.row?.interval.high ?? null); line.push(mean[k] ?? null);
  });
  return [xs, lows, highs, line];
}

function chart(box, points, smooth) {
  if (!box.isConnected || !points.length) return;
  const data = columns(points, smooth), ink = color('--muted'), line = color('--line');
  const top = Math.max(10, ...data[2].filter(v => v !== null), ...points.map(p => olds(p)?.high ?? 0)) * 1.08;
  const dates = (_, splits) => splits.map((t, k) => {
    const year = new Date(t * 1e3).getUTCFullYear();
    return day(t * 1e3) + (k === 0 || new Date(splits[k - 1] * 1e3).getUTCFullYear() !== year ? `\n${year}` : '');
  });
  const quiet = {stroke: 'transparent', points: {show: false}, spanGaps: false}, font = '12px system-ui, sans-serif';
  const hours = points.at(-1).window.end - points[0].window.start < 4 * 864e5;
  new uPlot({
    width: box.clientWidth, height: 240, legend: {show: false}, cursor: {show: false}, padding: [8, 12, 0, 0],
    tzDate: t => uPlot.tzDate(new Date(t * 1e3), 'Etc/UTC'),
    scales: {y: {range: [0, top]}, x: {time: true, range: (_, a, b) => {
      const margin = Math.max((b - a) * 0.05, (points[0].window.end - points[0].window.start) / 2000);
      return [a - margin, b + margin];
    }}},
    axes: [{stroke: ink, grid: {show: false}, ticks: {stroke: line}, font, space: 64, ...(hours ? {} : {values: dates})},
      {stroke: ink, grid: {stroke: line}, ticks: {show: false}, size: (_, texts) => 16 + 7 * Math.max(5, ...(texts ?? []).map(text => text.length)), font, values: (_, splits) => splits.map(num)}],
    series: [{}, quiet, quiet, {...quiet, stroke: color('--plot2'), width: 2, dash: [6, 4]}],
    bands: [{series: [2, 1], fill: color('--band')}],
    hooks: {drawAxes: [u => marks(u, points)]},
  }, data, box);
}

const olds = p => p.row && p.window.before?.intervals.get(p.row.item);

function marks(u, points) {
  const c = u.ctx, r = devicePixelRatio, y = v => u.valToPos(v, 'y', true), few = points.length <= 30;
  const bottom = u.bbox.top + u.bbox.height;
  const stroke = (x, a, b, width, dash = []) => {
    c.lineWidth = width * r;
    c.setLineDash(dash.map(d => d * r));
    c.beginPath(); c.moveTo(x, a); c.lineTo(x, b); c.stroke();
  };
  c.save();
  c.textAlign = 'center';
  c.font = `${13 * r}px system-ui, sans-serif`;
  points.forEach((p, k) => {
    const x = u.valToPos(p.x, 'x', true), old = olds(p);
    if (k && p.window.edition !== points[k - 1].window.edition) {
      c.strokeStyle = color('--ink');
      stroke((x + u.valToPos(points[k - 1].x, 'x', true)) / 2, u.bbox.top, bottom, 1, [2, 3]);
    }
    if (!p.row) {
      const sign = p.window.state === 'refused' ? '×' : p.window.state === 'lost' ? '!' : '▽';
      c.fillStyle = color(sign === '▽' ? '--muted' : '--bad');
      return c.fillText(sign, x, bottom - 6 * r);
    }
    if (p.row.interval.bare) {
      c.fillStyle = color('--plot');
      return c.fillText('●', x, bottom - 6 * r);
    }
    if (old && few && !old.open) {
      c.strokeStyle = color('--old');
      stroke(x + 6 * r, y(old.low), y(old.high), 1.2, [3, 3]);
    }
    c.strokeStyle = color('--plot');
    c.lineCap = 'round';
    stroke(x, y(p.row.interval.low), y(p.row.interval.high), few ? 4 : 2, p.row.interval.open ? [3, 5] : []);
    if (p.row.interval.open || p.row.count <= 0) return;
    c.fillStyle = color('--ink');
    c.fillRect(x - 3 * r, y(p.row.count) - r, 6 * r, 2 * r);
  });
  c.restore();
}
