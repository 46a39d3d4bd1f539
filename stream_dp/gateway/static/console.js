// The operators' page: what is open, what came, and what is changed.
import {get, Positions, send, signOut, Stream} from './api.js';
import {button, byId, h, muted} from './dom.js';
import {again, askForToken, say, shell, swap} from './shell.js';
import {at, budget, history, newest, problems, prose, refusals, runs, several, toCome} from './standing.js';
import {grantForm, grants} from './grants.js';
import {Tuning} from './tune.js';
import {clock} from './words.js';

const PATHS = {status: 'status', ledgers: 'account', settings: 'settings', grants: 'grant'};
const PARTS = [['#main', 'Now'], ['#budgets', 'Budgets'], ['#tune', 'Tune'], ['#grants', 'Grants'], ['#runs', 'How it runs'], ['#history', 'Settings']];
const state = {known: {}, who: null, down: null, stale: false, period: {}, rollout: null};
let positions = new Positions(), stream = null, tuning = null;
const drawn = new Map();

class Watching extends Stream {
  get events() { return Object.values(PATHS); }
  get asked() { return {}; }

  async late() {
    const {position, stale} = await get('/v1/status'), now = new Positions();
    if (this.closed) return '';
    now.take(position, 'status');
    state.stale = stale;
    frame();
    return [...now.byView].filter(([name, one]) => this.positions.misses(name, one)).map(([name]) => name).join();
  }
}

async function read(name) {
  const {body, position, stale} = await get(`/v1/${name}`);
  positions.take(position, PATHS[name]);
  state.stale = stale;
  state.known[name] = body;
}

async function start() {
  stream?.close();
  clearTimeout(state.timer);
  positions = new Positions();
  try {
    state.who = (await get('/v1/session')).body;
    await Promise.all(Object.keys(PATHS).map(read));
    state.down = null;
    overtake();
    stream = new Watching(null, positions, heard);
    draw();
  } catch (problem) {
    failed(problem);
  }
}

// The sliders stand on the settings in effect.
function overtake() {
  if (tuning && tuning.settings.settings.length !== state.known.settings.settings.length) tuning.take(state.known.settings);
}

function failed(problem) {
  if (problem.status === 401) return token(state.known.status ? 'unknown' : '');
  const next = Date.now() + (problem.retry ?? 5) * 1000;
  state.down = {since: state.down?.since ?? Date.now(), again: next, starting: problem.type === 'starting' && problem.body.detail};
  frame();
  state.timer = setTimeout(start, next - Date.now());
}

const heard = {
  up() {
    if (state.down) say('Live again.');
    state.down = null;
    frame();
  },
  down(when) {
    if (!state.down) say(`Live updates stopped at ${clock(when.since)}.`);
    state.down = when;
    frame();
  },
  ended: reason => token(reason),
  reset: () => start(),
  async event(name, data) {
    try {
      if (name === 'status') state.known.status = data.status;
      if (name === 'account') await read('ledgers');
      if (name === 'grant') await read('grants');
      if (name === 'settings') {
        if (data.rollout) rolled(data.rollout);
        if (data.settings !== state.known.settings.settings.length) {
          await Promise.all(['settings', 'ledgers', 'status'].map(read));
          overtake();
          say(`Settings ${data.settings} were posted.`);
        }
      }
      draw();
    } catch (problem) {
      failed(problem);
    }
  },
};

// -- what is changed -------------------------------------------------------------------------------------------------

function rolled(rollout) {
  if (JSON.stringify(rollout) === JSON.stringify(state.rollout)) return;
  state.rollout = rollout;
  say(outcome(rollout).join(' '));
}

// How far workers are with the settings that were posted last.
function outcome({settings, by_all: byAll, over, workers}) {
  const posted = `Settings ${settings} are posted.`;
  if (!workers) return [posted, over ? 'It is not known yet which workers use them.' : 'Waiting up to 60 s for the workers ...'];
  const {state: verdict, reason, used_by: used, others, silent, ran} = workers, all = used.length + others.length + silent;
  if (verdict === 'refused') return [`Settings ${settings} are refused. Nothing changes.`, reason];
  if (!all) return [posted, ran ? 'No worker runs any more. Read their logs.' : 'No worker runs. The settings wait until a worker starts and accepts them.'];
  if (verdict === 'waiting') return [posted, over ? 'No worker has accepted them within a minute. Read their logs.' : 'Waiting up to 60 s for a worker to accept them ...'];
  if (byAll) return [all === 1 ? `The worker uses settings ${settings}.` : `All ${all} workers use settings ${settings}.`, ''];
  const missing = [...others, ...(silent ? [`${silent} without a report`] : [])].join(', ');
  return [`${used.length} of ${several(all, 'worker')} ${used.length === 1 ? 'uses' : 'use'} settings ${settings}.`,
    `Not yet: ${missing}. ${over ? 'Not all have said so within a minute. They read settings before they close another window.' : 'Waiting up to 60 s ...'}`];
}

const mayChange = () => state.who?.gives === 'operator';

const tuningActs = {
  may: mayChange,
  ended: () => token('unknown'),
  overtaken: () => start(),
  paid: name => newest(state.known.ledgers.ledgers).find(one => one.ledger === name)?.affords,
  posted({settings, posted, already}) {
    rolled(posted ? {settings, by_all: false, over: already, workers: null} : state.rollout);
    draw();
    byId('rollout')?.focus();
  },
};

const refusedWords = problem => problem.body?.faults?.map(one => `${one.path}: ${one.message}`) ?? [problem.body?.detail ?? 'The console does not answer. Look at the list of grants before you send it again.'];

const grantActs = {
  weigh: grant => send('POST', '/v1/grants', {grant}),
  give: (grant, plan) => send('POST', '/v1/grants', {grant, plan}),
  takeBack: id => send('DELETE', `/v1/grants/${encodeURIComponent(id)}`, {consent: true}),
  words: refusedWords,
  ended: () => token('unknown'),
};

// -- drawing ---------------------------------------------------------------------------------------------------------

function frame() {
  const {down, stale, who, known} = state;
  swap('parts', known.status ? PARTS.filter(([href]) => href !== '#tune' || mayChange()).map(([href, text]) => h('a', {href}, text)) : []);
  byId('live').className = `live ${down ? 'off' : ''}`;
  swap('live', known.status || down ? [h('i', {'aria-hidden': 'true'}), down ? 'Interrupted' : 'Live'] : []);
  byId('tokens').textContent = who ? 'Sign out' : 'Use a token';
  const text = down?.starting ? ['The console is starting.', down.starting]
    : down ? [`Live updates stopped at ${clock(down.since)}.`, known.status ? 'What you see came until then.' : 'Nothing has come yet.']
      : stale ? ['Kafka does not answer the console.', 'What you see came until then.'] : null;
  swap('banner', text ? [h('div', {class: 'bar', role: 'status'}, h('strong', {}, text[0]), h('span', {}, prose(text[1])),
    down && again(down), down && button('Try now', () => (stream && !stream.closed ? stream.again() : start()), {id: 'try'}))] : []);
}

// A part is drawn anew where what it shows has changed; what is open in it stays open, and the focus stays.
function part(id, shows, build) {
  const key = JSON.stringify(shows), old = byId(`part-${id}`);
  if (drawn.get(id) === key && old.childNodes.length) return;
  drawn.set(id, key);
  const open = [...old.querySelectorAll('details[open]')].map(one => one.id), active = document.activeElement?.id;
  old.replaceChildren(...[build()].flat(9).filter(Boolean));
  for (const one of open) if (byId(one)) byId(one).open = true;
  if (active && active !== document.activeElement?.id) byId(active)?.focus({preventScroll: true});
}

function draw(anew = false) {
  frame();
  const {known, who} = state;
  if (!known.grants) return;
  const may = mayChange(), name = who.application;
  document.title = `${name} · stream-dp`;
  if (!byId('part-now')) {
    drawn.clear();
    tuning = new Tuning(known.settings, tuningActs);
    const slot = id => h('div', {id: `part-${id}`});
    byId('body').replaceChildren(h('main', {id: 'main', tabindex: -1, class: 'desk'}, slot('head'), slot('rollout'), slot('now'),
      h('div', {class: 'two', id: 'budgets'}, slot('budgets'), h('div', {}, slot('come'), slot('grants'), slot('grant'), slot('refusals'))), tuning.element, slot('runs'), slot('history')));
    tuning.changed();
  }
  if (anew) { drawn.clear(); tuning.changed(); }
  const {status, ledgers: {ledgers}, settings, grants: {grants: given}} = known;
  const clocks = Object.values(status.views).flatMap(view => Object.values(view.clocks_ms)), newestSettings = settings.settings.at(-1);
  part('head', [status.at_ms, settings.settings.length, who, clocks], () => [h('h1', {}, name), muted(
    `Settings ${newestSettings.number}, posted ${at(newestSettings.at_ms)}. `, clocks.length > 0 && `The stream is at ${at(Math.max(...clocks))}. `, `Read at ${clock(status.at_ms)}. `, !may && 'Your token is for looking only.')]);
  part('rollout', state.rollout, () => state.rollout && rolloutCard());
  part('now', [status.problems, ledgers, may], () => problems({status, ledgers}, may));
  part('budgets', [ledgers, state.period], () => (ledgers.length ? budgets(ledgers) : h('section', {class: 'card'}, h('h2', {}, 'Budgets'), muted('Nothing was charged yet.'))));
  part('come', status.to_come, () => toCome({status}));
  part('grants', [given, may], () => grants(given, may && grantActs));
  part('grant', [settings.settings.length, may], () => may && grantForm(newestSettings.sections, grantActs));
  part('refusals', ledgers, () => refusals(ledgers));
  part('runs', [status.workers, status.views, status.lag, status.totals, status.partitions_without_a_worker], () => runs({status}));
  part('history', settings, () => history(settings));
}

function rolloutCard() {
  const [what, rest] = outcome(state.rollout), close = () => { state.rollout = null; draw(); };
  return h('section', {class: 'card settings-bar', id: 'rollout', tabindex: -1}, h('strong', {}, what), ` ${rest} `, (state.rollout.by_all || state.rollout.over) && button('Close', close, {id: 'rollout-close'}));
}

function budgets(ledgers) {
  return newest(ledgers).map(({ledger: name}) => [name, ledgers.filter(one => one.ledger === name)]).map(([name, periods]) => budget(periods, state.period[name], start => { state.period = {...state.period, [name]: start}; draw(); byId(`period-${name}`).focus(); }));
}

function token(reason) {
  stream?.close();
  clearTimeout(state.timer);
  byId('plan')?.remove();
  tuning = null;
  Object.assign(state, {known: {}, who: null, down: null, stale: false, period: {}, rollout: null});
  frame();
  askForToken(reason, {title: 'Operate', about: 'You need an operator\u2019s token here. Whoever has the configuration file makes one with ', command: 'stream-dp token new FILE --operator', done: start});
}

byId('tokens').addEventListener('click', async () => {
  if (state.who) await signOut().catch(() => null);
  token('');
});
shell(() => draw(true), () => state.down);
start();
