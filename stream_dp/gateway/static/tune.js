/* Tuning: what a change of settings would mean, and the change itself, after consent.

   Values are texts of exact numbers; every price and every error comes from the console (`/v1/plan`), which looks at
   settings only. The true numbers here are made up: nobody shall choose settings by what was released. */
import uPlot from './vendor/uPlot.esm.js';
import {send} from './api.js';
import {button, byId, color, h, muted} from './dom.js';
import {places} from './model.js';
import {dots} from './series.js';
import {say} from './shell.js';
import {at, change, prose, rounded, table, tile} from './standing.js';
import {length, list, num} from './words.js';

const STILL_MS = 120, CURVE_MS = 400, MADE_UP = [100, 300, 500], MOST_POINTS = 7;
const EPSILONS = ['1/1000', '1/500', '1/200', '1/100', '1/50', '1/40', '1/20', '3/40', '1/10', '3/20', '1/5', '3/10', '2/5', '1/2', '3/5', '4/5', '1', '3/2', '2', '3', '4', '6', '8', '10'];
const LENGTHS = ['1m', '5m', '10m', '15m', '30m', '1h', '2h', '3h', '6h', '12h', '1d', '2d', '7d', '14d', '28d', '84d'];
const DELTAS = ['1e-12', '1e-11', '1e-10', '1e-9', '1e-8', '1e-7', '1e-6', '1e-5', '1e-4'];
const SHARES = ['1/20', '1/10', '1/5', '1/4', '1/3', '1/2', '2/3', '3/4', '1'];
const COUNTS = Array.from({length: 20}, (_, k) => String(k + 1));
const UNITS = {ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5};

// For the place on a slider only.
const ratio = text => { const [a, b = '1'] = text.split('/'); return Number(a) / Number(b); };
const duration = text => (/^(\d+(ms|[smhd]))+$/.test(text) ? [...text.matchAll(/(\d+)(ms|[smhd])/g)].reduce((sum, [, n, unit]) => sum + n * UNITS[unit], 0) : NaN);

function stepsWith(values, now, size) {
  if (Number.isNaN(size(now))) return [now];
  return [...values.filter(value => size(value) !== size(now)), now].sort((a, b) => size(a) - size(b));
}

// The settings of a view that have a slider.
function controlsOf(sections, name) {
  const view = sections.views[name], mine = Object.keys(sections.audiences).filter(one => !view.audiences || [view.audiences].flat().includes(one));
  const starts = one => sections.audiences[one].level ?? sections.audiences[one], found = [];
  const add = (key, label, now, values, low, high, more = {}) => {
    if (now === undefined || now === null) return;
    const size = more.size ?? ratio, text = String(now);
    found.push({key, label, before: text, value: text, values: stepsWith(values, text, size), low, high, paths: [`views.${name}.${key}`], size, ...more});
  };
  for (const [k, {level, epsilon, share}] of sections.ladders[view.ladder].entries()) {
    const who = mine.filter(one => starts(one) === level), others = Object.keys(sections.views).filter(one => one !== name && sections.views[one].ladder === view.ladder);
    const also = others.length ? `also of ${list(others)}` : '';
    const key = share === undefined ? 'epsilon' : 'share', label = `${share === undefined ? 'Epsilon' : 'Share'} of level ${level}`;
    add(`levels.${level}.${key}`, label, epsilon ?? share, share === undefined ? EPSILONS : SHARES, 'more noise, cheaper', 'less noise, dearer', {level, isStart: who.length > 0,
      note: [who.length && `${list(who)} ${who.length > 1 ? 'start' : 'starts'} here`, also].filter(Boolean).join('; '),
      paths: [`ladders.${view.ladder}.${k}`, `ladders.${view.ladder}.${level}`, `ladders.${view.ladder}`]});
  }
  add('items_per_user', 'Items counted of one user', view.items_per_user, COUNTS, 'less noise, counts less', 'more noise, counts more');
  add('window.size', 'Length of a window', view.window.size, LENGTHS, 'more often', 'cheaper a day', {size: duration,
    show: text => (Number.isNaN(duration(text)) ? text : length({start: 0, end: duration(text)}))});
  add('k', 'Keys shown (k)', view.k, COUNTS, 'fewer, cheaper', 'more, dearer');
  add('selection.epsilon', 'Epsilon of the choice of keys', view.selection?.epsilon, EPSILONS, 'less sure, cheaper', 'surer, dearer');
  add('delta', 'Delta of the keys', view.delta, DELTAS, 'shown from a higher count', 'shown from a lower count');
  add('share', 'Share of the budget', view.share, SHARES, 'less kept for this view', 'more kept for this view');
  return found;
}

const epsilonOf = one => Number(one.epsilon.decimal);
const SIGNS = {epsilon: 'ε', delta: 'δ'};
const cost = one => (one ? Object.entries(one).filter(([, amount]) => amount && amount.exact !== '0').map(([name, amount]) => `${SIGNS[name] ?? name}\u00a0${rounded(amount.decimal)}`).join(', ') || 'nothing' : 'nothing');
const paid = lasts => (!lasts ? 'not at all' : lasts.is_whole ? 'to the end of the period' : lasts.until ? `until ${at(new Date(lasts.until).getTime())}` : `for ${lasts.into_period} of a period`);
const step = (before, after, show) => (JSON.stringify(before) === JSON.stringify(after) ? show(after) : `${show(before)} → ${show(after)}`);

// How often of 100 a made-up true number would be shown: the noise is two-sided geometric, or Gaussian (a close formula).
function seen(count, level) {
  const {scale, distribution} = level.noise.after, lacks = level.minimum_count.after - count, x = lacks / scale;
  const p = distribution === 'discrete gaussian' ? 1 / (1 + Math.exp(1.5976 * x + 0.070566 * x ** 3)) : lacks > 0 ? 0.5 * Math.exp(-lacks / scale) : 1 - 0.5 * Math.exp(lacks / scale);
  return p >= 0.985 ? 'shown' : p <= 0.015 ? 'hidden' : `shown in ${Math.round(100 * p)} of 100 windows`;
}

// Up to seven values, the one in effect among them as long as it is near.
function around(one) {
  const all = stepsWith(one.values, one.value, one.size), place = value => Math.max(0, Math.min(all.indexOf(value) - 3, all.length - MOST_POINTS));
  const first = Math.abs(all.indexOf(one.value) - all.indexOf(one.before)) <= 3 ? place(one.before) : place(one.value);
  return all.slice(first, first + MOST_POINTS);
}

const still = ms => new Promise(done => { setTimeout(done, ms); });

export class Tuning {
  // `on`: may(): whether settings may be changed; posted(answer); ended(): the token is not good any more.
  constructor(settings, on) {
    Object.assign(this, {on, answer: null, busy: false, waiting: false, number: 0, more: ''});
    this.element = h('section', {class: 'card', id: 'tune', hidden: !on.may()});
    this.take(settings);
  }

  // Take the settings in effect; what was moved stays where it is.
  take(settings) {
    const {view, controls = [], more, moved} = this, focused = document.activeElement?.id;
    this.settings = settings;
    this.sections = settings.settings.at(-1).sections;
    if (!(view in this.sections.views)) return this.choose(Object.keys(this.sections.views)[0]);
    this.choose(view, {values: new Map(controls.filter(one => one.value !== one.before).map(one => [one.key, one.value])), more, moved: moved?.key});
    if (this.element.isConnected && focused !== document.activeElement?.id) byId(focused)?.focus({preventScroll: true});
  }

  choose(view, {values = new Map(), more = '', moved} = {}) {
    Object.assign(this, {view, controls: controlsOf(this.sections, view), more, answer: null, points: null});
    for (const one of this.controls) one.value = values.get(one.key) ?? one.value;
    this.moved = this.controls.find(one => one.key === moved) ?? this.controls.findLast(one => one.isStart) ?? this.controls[0];
    this.level = this.moved.level ?? null;
    this.build();
    this.changed();
  }

  get assignments() {
    return [...this.controls.filter(one => one.value !== one.before).map(one => `${one.key}=${one.value}`),
      ...this.more.split('\n').map(line => line.trim()).filter(Boolean)];
  }

  build() {
    const views = Object.keys(this.sections.views);
    const more = h('textarea', {id: 'more', rows: 2, spellcheck: 'false', placeholder: 'kbar=80', oninput: () => { this.more = more.value; this.changed(); }}, this.more);
    this.element.replaceChildren(h('h2', {}, 'Tune a view'),
      muted('Move a slider to see what it would do. All of this follows from the settings alone: no data and no release is looked at. Nothing changes until you agree to the plan.'),
      h('div', {class: 'opts'}, h('label', {}, 'View ', h('select', {id: 'tune-view', onchange: event => this.choose(event.target.value)}, views.map(name => h('option', {selected: name === this.view}, name))))),
      h('div', {class: 'two'}, h('div', {}, h('div', {class: 'tiles', id: 'tiles'}), this.controls.map(one => this.control(one)),
        h('details', {id: 'tune-more', open: this.more !== ''}, h('summary', {}, 'Another setting'), h('label', {class: 'field', for: 'more'}, 'One a line, as the file has it: ', h('code', {}, 'KEY=VALUE')), more),
        h('div', {class: 'faults', id: 'faults', role: 'alert'}),
        h('div', {class: 'opts'}, this.on.may() && button('Show the plan', () => this.agree(), {id: 'show-plan', class: 'main', disabled: true}),
          button('Back to what is in effect', () => this.choose(this.view), {id: 'undo', disabled: true}))),
      h('div', {id: 'meaning', 'aria-busy': 'true'})));
  }

  control(one) {
    const id = `tune-${one.key}`, shown = one.show ?? (text => text);
    const near = text => { const size = one.size(text); return one.values.reduce((a, b) => (Math.abs(one.size(b) - size) < Math.abs(one.size(a) - size) ? b : a)); };
    const set = text => {
      one.value = text;
      exact.value = text;
      slider.value = one.values.indexOf(near(text));
      slider.setAttribute('aria-valuetext', shown(text));
      this.moved = one;
      if (one.level) this.level = one.level;
      this.changed();
    };
    const exact = h('input', {type: 'text', id: `${id}-exact`, 'aria-label': `${one.label}, exactly`, value: one.value, autocomplete: 'off', spellcheck: 'false',
      onchange: () => set(exact.value.trim() || one.before)});
    const slider = h('input', {type: 'range', id, min: 0, max: one.values.length - 1, value: one.values.indexOf(near(one.value)), disabled: one.values.length < 2,
      'aria-valuetext': shown(one.value), 'aria-describedby': `${id}-fault`, oninput: () => set(one.values[slider.value])});
    return h('div', {class: 'ctl'}, h('div', {}, h('label', {for: id}, one.label, one.note && h('small', {}, ` (${one.note})`)), exact), slider,
      h('div', {class: 'ends', 'aria-hidden': 'true'}, h('span', {}, one.low), h('span', {}, one.high)), h('p', {class: 'fault', id: `${id}-fault`}));
  }

  // The last movement decides: asked when nothing has moved for a moment, one request at a time.
  changed() {
    this.number += 1;
    for (const id of ['meaning', 'tiles']) byId(id)?.classList.add('stale');
    const button = this.element.querySelector('#show-plan');
    if (button) button.disabled = true;
    this.element.querySelector('#undo').disabled = !this.assignments.length;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), STILL_MS);
  }

  async ask() {
    if (!this.on.may()) return;
    if (this.busy) {
      this.waiting = true;
      return;
    }
    this.busy = true;
    const {number, view, assignments, moved} = this, isStale = () => number !== this.number || !this.element.isConnected;
    const others = assignments.filter(one => !one.startsWith(`${moved.key}=`)), values = around(moved), key = JSON.stringify([this.settings.settings.length, view, others, moved.key, values]);
    try {
      const known = this.drawn?.key === key && this.drawn.points, has = this.said === number && this.answer;
      const answer = has || await send('POST', '/v1/plan', {view, assignments});
      if (isStale()) return;
      this.said = number;
      if (!has) this.show(answer, known || null);
      if (known || !this.answer || await still(CURVE_MS) || isStale()) return;
      const {points} = await send('POST', '/v1/plan/curve', {view, assignments: others, setting: moved.key, values});
      this.drawn = {key, points};
      if (!isStale()) this.show(answer, points);
    } catch (problem) {
      if (!isStale()) this.failed(problem);
    } finally {
      this.busy = false;
      if (this.waiting) this.ask(this.waiting = false);
    }
  }

  failed(problem) {
    if (problem.status === 401) return this.on.ended();
    if (problem.status === 400) return this.faults([{path: '', message: problem.body.detail}]);
    this.timer = setTimeout(() => this.ask(), (problem.retry ?? 2) * 1000);
    if (problem.status !== 429) this.faults([{path: '', message: problem.body?.detail ?? 'The console does not answer. It is asked again.'}]);
  }

  // Each fault at its slider, in the words of `check`; the others below.
  faults(found) {
    const rest = new Set(found);
    for (const one of this.controls) {
      const mine = found.filter(({path}) => one.paths.some(own => path === own || path.startsWith(`${own}.`)));
      const here = mine.filter(fault => rest.delete(fault));
      byId(`tune-${one.key}-fault`).replaceChildren(...prose(here.map(fault => fault.message).join('; ')));
      byId(`tune-${one.key}`).setAttribute('aria-invalid', here.length > 0);
    }
    byId('faults').replaceChildren(...[...rest].map(({path, message}) => h('p', {}, path && h('code', {}, path), path && ': ', prose(message))));
  }

  show(answer, points = null) {
    this.faults(answer.faults);
    this.answer = answer.faults.length ? null : answer;
    if (answer.faults.length) return points || say(`This is not possible: ${answer.faults[0].message}`, true);
    const isChange = answer.change.differs.length > 0, names = answer.levels.filter(one => one.noise_interval_95.after !== null).map(one => one.level);
    const level = answer.levels.find(one => one.level === this.level && names.includes(one.level)) ?? answer.levels.find(one => one.audiences.length) ?? answer.levels[0];
    this.tiles(answer, level);
    byId('meaning').replaceChildren(...[
      h('label', {class: 'opts'}, 'Level ', h('select', {id: 'tune-level', onchange: event => { this.level = event.target.value; this.show(answer, points); byId('tune-level').focus(); }},
        names.map(name => h('option', {selected: name === level.level}, name)))),
      points && this.curve(points, level, answer), reading(level, this.sections.views[this.view]),
      answer.warnings.map(text => h('p', {class: 'note warn'}, prose(text)))].flat(9).filter(Boolean));
    for (const id of ['meaning', 'tiles']) byId(id).classList.remove('stale');
    const button = byId('show-plan');
    if (button) button.disabled = !isChange;
    if (isChange && this.spoken !== this.number) say(`Level ${level.level}: each count ±${num(level.noise_interval_95.after)}, was ±${num(level.noise_interval_95.before ?? 0)}. A day costs ${cost(answer.view_day.after)}.`, true);
    this.spoken = this.number;
  }

  tiles({view_day: price, ledgers}, {level, noise_interval_95: noise, minimum_count: least}) {
    const named = this.sections.views[this.view].ledger, ledger = ledgers.find(one => one.ledger === named), now = this.on.paid(named);
    const until = now && {is_whole: now.state === 'whole', until: now.all_views_until}, kept = ledger ? ledger.pays_until : until && {before: until, after: until};
    const was = ({before, after}, show, size) => (before === null || show(before) === show(after) ? 'as it is'
      : h('span', {class: size ? (size(after) < size(before) ? 'down' : 'up') : null}, `${size ? (size(after) < size(before) ? '▼ ' : '▲ ') : ''}was ${show(before)}`));
    byId('tiles').replaceChildren(...[
      tile(`Right to within, 95 % (${level})`, `±${num(noise.after)}`, was(noise, n => `±${num(n)}`, n => n)),
      least?.after && tile('A key is shown from', num(least.after), was(least, num, n => n)),
      price.after && tile('Price of a day, at worst', cost({epsilon: price.after.epsilon}), was(price, one => cost({epsilon: one.epsilon}), epsilonOf)),
      kept && tile('All views are paid', paid(kept.after), was(kept, paid))].filter(Boolean));
  }

  // The plan as `stream-dp apply` shows it, a note, consent, the button.
  agree(conflict = null) {
    const {answer} = this, {plan, settings, removes, change: made} = answer, question = {view: this.view, assignments: this.assignments};
    const note = h('input', {type: 'text', id: 'note', autocomplete: 'off', maxlength: 500});
    const name = removes.length > 0 && h('input', {type: 'text', id: 'application', autocomplete: 'off', spellcheck: 'false', oninput: () => ready()});
    const agreed = h('input', {type: 'checkbox', id: 'agreed', onchange: () => ready()}), wrong = h('div', {class: 'faults', role: 'alert', id: 'refused'});
    const ready = () => { post.disabled = !agreed.checked || (name && !name.value.trim()); };
    const close = () => { dialog.close(); dialog.remove(); byId('show-plan')?.focus(); };
    const post = button('Apply this change', async () => {
      post.disabled = true;
      try {
        const posted = await send('POST', '/v1/settings', {...question, plan, settings, note: note.value.trim(), ...(name && {application: name.value.trim()})});
        close();
        this.on.posted(posted);
      } catch (problem) {
        this.refused(problem, wrong, close);
        ready();
      }
    }, {class: 'main', disabled: true, id: 'apply'});
    const dialog = h('dialog', {id: 'plan', 'aria-labelledby': 'plan-title', onclose: () => dialog.remove()},
      h('h2', {id: 'plan-title', tabindex: -1}, `Settings ${settings} → ${settings + 1}`), conflict && h('div', {class: 'note warn', role: 'alert'}, conflict), page(made, answer.levels),
      removes.length > 0 && h('div', {class: 'note warn'}, h('p', {}, `This removes: ${list(removes, 20)}.`), h('label', {class: 'field'}, 'Write the name of the application to agree to that', name)),
      h('label', {class: 'field'}, 'Why (kept in the history)', note), h('label', {class: 'tick'}, agreed, 'I have read what this means and costs.'), wrong,
      h('div', {class: 'opts'}, post, button('Change nothing', close, {id: 'no'})));
    byId('plan')?.remove();
    document.body.append(dialog);
    dialog.showModal();
    byId('plan-title').focus();
  }

  refused(problem, wrong, close) {
    const {type, body} = problem;
    if (problem.status === 401) { close(); return this.on.ended(); }
    if (type === 'plan_changed') {
      this.answer = body.now;
      return this.agree(h('p', {}, h('strong', {}, 'Nothing was changed. '), 'A window has begun meanwhile, or something else is different: this is what the change means now. Read it, and agree again.'));
    }
    if (type === 'settings_changed') {
      const {settings, note, changed} = body.theirs;
      wrong.replaceChildren(h('p', {}, h('strong', {}, `Nothing was changed: settings ${settings}${note ? ` (${note})` : ''} were posted first.`)), h('ul', {}, changed.map(one => h('li', {}, change(one)))),
        h('p', {}, 'Close this, look at what your sliders mean on top of them, and agree again.'));
      return this.on.overtaken();
    }
    const said = body?.faults?.map(one => one.message).join(' ') ?? body?.detail ?? 'The console does not answer. It is not known whether this was posted. Send the same again: it takes effect once.';
    wrong.replaceChildren(h('p', {}, prose(said)));
  }

  // Error against price for some values of the setting that moved last; by value where the price does not move.
  curve(points, level, answer) {
    const of = one => one.levels?.find(each => each.level === level.level)?.noise_interval_95.after ?? null;
    const price = one => one.view_day?.after ?? null;
    const known = points.filter(one => !one.faults.length && of(one) !== null && price(one)).map(one => ({...one, y: of(one), price: price(one)}));
    const byPrice = new Set(known.map(one => one.price.epsilon.exact)).size > 1, moved = this.moved, shown = moved.show ?? (text => text);
    const x = one => (byPrice ? epsilonOf(one.price) : moved.size(one.value));
    const {before, after} = answer.view_day, marks = [{x: byPrice ? epsilonOf(before) : moved.size(moved.before), y: level.noise_interval_95.before, text: 'now', ink: '--old'}];
    if (answer.change.differs.length) marks.push({x: byPrice ? epsilonOf(after) : moved.size(moved.value), y: level.noise_interval_95.after, text: 'proposed', ink: '--plot2'});
    const box = h('div', {class: 'plot', role: 'img', 'aria-label': `Error of level ${level.level} for ${known.length} values of ${moved.label}. The table below says the same.`});
    queueMicrotask(() => draw(box, known.map(one => ({x: x(one), y: one.y})), marks, byPrice ? 'epsilon a day, at worst' : moved.label));
    return [h('h3', {}, `Error against ${byPrice ? 'price' : 'value'}: ${moved.label}`), box, h('details', {id: 'curve-table'}, h('summary', {}, 'As a table'),
      table(`${moved.label}: error and price`, ['Value', '#Error, 95 %', '#A day'], points.map(one => [shown(one.value), one.faults.length ? 'not possible' : `±${num(of(one))}`, price(one) ? cost({epsilon: price(one).epsilon}) : ''])))];
  }
}

const GOES_ON = {true: 'Open windows continue: nothing that is counted or noised changes.', false: 'A new edition begins with this window. Earlier windows keep theirs, and what is spent stays spent.'};

// A change in words, as `stream-dp apply` prints it.
function page({settings, differs, views, ledgers, former_editions: former, warnings, reverts}) {
  const shown = new Set(views.flatMap(view => view.settings.map(one => one.path)).concat(ledgers.flatMap(one => one.settings.map(each => each.path))));
  const rows = (of, pairs) => table(`What changes of ${of}`, ['What', 'Before → after'], pairs.filter(Boolean));
  const setting = ({path, before, after, change: kind}) => [path, kind === 'changed' ? `${before ?? 'none'} → ${after ?? 'none'}` : change({path: '', before, after, change: kind}).trim()];
  const noise = n => (n === null ? 'none' : `±${num(n)}`), rest = differs.filter(one => !shown.has(one.path));
  return h('div', {id: 'page'}, views.map(view => [
    h('h3', {}, view.change === 'removed' ? `View ${view.view} ends at ${at(view.at_ms)}` : `View ${view.view}${view.change === 'new' ? ' (new)' : ''}, from the window of ${at(view.at_ms)} on`),
    rows(`view ${view.view}`, [...view.settings.map(setting), ['a day costs, at worst', step(view.day_before, view.day_after, cost)], ...view.levels.map(one => [`95 % error of a count, level ${one.level}`, step(one.before, one.after, noise)])]),
    view.change === 'changed' && h('p', {}, GOES_ON[view.goes_on])]),
  ledgers.map(one => [h('h3', {}, `Ledger ${one.ledger}`), rows(`ledger ${one.ledger}`, [...one.settings.map(setting), ['a day of all views costs, at worst', step(one.day_before, one.day_after, cost)], ['all views are paid', step(one.lasts_before, one.lasts_after, lasting)]])]),
  rest.length > 0 && [h('h3', {}, 'In no view'), rows('no view', rest.map(setting))],
  former.length > 0 && [h('h3', {}, 'Earlier windows are published differently'), h('ul', {}, former.map(one => h('li', {},
    `View ${one.view}, edition ${one.edition}, windows from ${at(one.from_ms)}${one.until_ms ? ` until ${at(one.until_ms)}` : ' on'}: ${one.changes.map(each => `${each.what} ${each.before ?? 'none'} → ${each.after ?? 'none'}`).join('; ')}`)))],
  [...reverts, ...warnings].map(text => h('p', {class: 'note warn'}, prose(text))),
  muted(`Windows that begin earlier keep their counts and noise. Who sees them follows settings ${settings + 1} as soon as the workers use these. What was spent stays spent.`));
}
const lasting = one => paid(one && {is_whole: one.is_whole, until: one.until_ms, into_period: `${Math.floor(one.for_ms / UNITS.d)} d`});

// How made-up true numbers would read at a level.
function reading(level, {kind, window}) {
  const half = level.noise_interval_95.after, least = level.minimum_count?.after ?? null, made = {noise: level.noise.after, noise_interval_95: half}, values = places(made, 500);
  const rows = MADE_UP.map(count => {
    const how = least === null ? 'counted' : seen(count, level);
    return [num(count), how, how === 'hidden' ? '' : `${num(Math.max(0, count - half))} to ${num(count + half)}`];
  });
  return [h('h3', {}, 'How a true number would read'), table('How made-up true numbers would read', ['#True number (made up)', 'It is', '#95 % of noisy counts'], rows),
    values && kind !== 'running' && !window.pane && [h('h3', {}, 'A true 500, as it would be seen'), dots(values, {release: made}, {count: 500, interval: {low: Math.max(0, 500 - half), high: 500 + half}})]];
}

function draw(box, points, marks, label) {
  if (!box.isConnected || !points.length) return;
  const sorted = [...points].sort((a, b) => a.x - b.x), ink = color('--muted'), line = color('--line'), font = '12px system-ui, sans-serif';
  const most = key => Math.max(...sorted.concat(marks).map(one => one[key])) * 1.1;
  const mark = u => {
    const c = u.ctx, r = devicePixelRatio;
    c.save();
    c.font = `600 ${12 * r}px system-ui, sans-serif`;
    for (const {x, y, text, ink} of marks) {
      const left = u.valToPos(x, 'x', true), top = u.valToPos(y, 'y', true), isRight = left > u.bbox.left + u.bbox.width * 0.7;
      c.fillStyle = color(ink);
      c.beginPath(); c.arc(left, top, 6 * r, 0, 7); c.fill();
      c.textAlign = isRight ? 'right' : 'left';
      const place = [text, left + (isRight ? -9 : 9) * r, top + (text === 'now' ? 15 : -7) * r];
      Object.assign(c, {strokeStyle: color('--surface'), lineWidth: 5 * r, lineJoin: 'round'});
      c.strokeText(...place);  // so that the curve does not run through the word
      c.fillText(...place);
    }
    c.restore();
  };
  new uPlot({
    width: box.clientWidth, height: 220, legend: {show: false}, cursor: {show: false}, padding: [10, 16, 0, 0],
    scales: {x: {time: false, range: [0, most('x')]}, y: {range: [0, most('y')]}},
    axes: [{stroke: ink, grid: {show: false}, ticks: {stroke: line}, font, label, labelFont: font, labelSize: 18},
      {stroke: ink, grid: {stroke: line}, ticks: {show: false}, size: 54, font, values: (_, splits) => splits.map(v => `±${num(v)}`)}],
    series: [{}, {stroke: color('--plot'), width: 2, points: {show: true, size: 6, fill: color('--surface')}}],
    hooks: {draw: [mark]},
  }, [sorted.map(one => one.x), sorted.map(one => one.y)], box);
}
