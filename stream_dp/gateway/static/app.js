// The readers' page: what is open, what came, and the drawing of it.
import {file, get, Positions, signedIn, signOut, Stream, windowsOf} from './api.js';
import {button, byId, card, h, muted} from './dom.js';
import {Board, edges, fromAnswer} from './model.js';
import * as part from './parts.js';
import {oneKey} from './series.js';
import {again, askForToken, say, shell, swap} from './shell.js';
import {clock, day, iso, moment, num, short, span} from './words.js';

const PAGE = 60, MOST_PAGES = 20, LOOK_MS = 15000, READ_MS = 1000;
const state = {views: [], audiences: [], audience: null, view: null, window: null, item: null, smooth: false, all: false, comparing: null,
  moved: null, down: null, stale: false, absent: false};
let boards = new Map(), positions = new Positions(), stream = null;

const mine = () => state.views;
const current = () => mine().find(view => view.view === state.view);
const titled = view => ({...view, title: view.title || view.view, unit: view.unit || 'users'});
const board = () => boards.get(state.view) ?? boards.set(state.view, new Board()).get(state.view);

// Addresses: #/audience/view/start..end?item=
function address({audience = state.audience, view = state.view, window = null, item = null}) {
  const ends = window?.split(/(?<=\d)-/).map(Number);
  const path = [audience, view, ends && `${short(ends[0])}..${short(ends[1])}`].filter(Boolean).map(encodeURIComponent);
  return `#/${path.join('/')}${item === null ? '' : `?item=${encodeURIComponent(item)}`}`;
}

function read() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?'), [audience, view, ends] = path.split('/').map(decode);
  const window = ends?.includes('..') ? ends.split('..').map(text => Date.parse(text)).join('-') : null;
  return {audience, view, window, item: new URLSearchParams(query).get('item')};
}

const decode = text => { try { return decodeURIComponent(text); } catch { return text; } };

function go(change) {
  const {focus, ...rest} = change;
  Object.assign(state, rest);
  if ('window' in change) state.comparing = null;
  history.replaceState(null, '', address(state));
  draw();
  if (focus) byId(focus)?.focus();
}

async function route() {
  state.absent = false;
  const to = read(), audience = to.audience || state.views[0]?.audience || state.audiences[0];
  if (audience !== state.audience) {
    try {
      await change(audience);
    } catch (problem) {
      return failed(problem);
    }
  }
  const view = to.view || mine()[0]?.view || null;
  if (view !== state.view) Object.assign(state, {view, all: false, comparing: null, moved: null});
  Object.assign(state, {window: to.window, item: to.item});
  draw();
  if (current() && (!board().loaded || (state.window && !board().byId.has(state.window)))) await load();
}

async function change(audience) {
  stream?.close();
  const {body} = await get('/v1/views', {audience});
  Object.assign(state, {audience, views: body.views.map(titled), view: null, down: null});
  boards = new Map();
  positions = new Positions();
  for (const view of mine()) positions.take(view.position, view.view);
  if (mine().length) stream = new Stream(audience, positions, heard);
}

// The newest windows; further ones until the one that the address names is among them.
async function load(more = false) {
  const {audience, view} = state, mineNow = board();
  try {
    for (let page = 0; page < MOST_PAGES && (page === 0 || (state.window && !mineNow.byId.has(state.window) && mineNow.next)); page++) {
      const cursor = more || mineNow.loaded ? mineNow.next : null;
      if (mineNow.loaded && !cursor) break;
      const {body, position} = await get(windowsOf(view), {audience, limit: PAGE, cursor});
      if (audience !== state.audience) return;
      if (!mineNow.loaded) positions.take(position, view);
      body.windows.forEach(one => mineNow.take(one));
      Object.assign(mineNow, {next: body.next ?? null, loaded: true});
    }
    if (view === state.view) draw();
  } catch (problem) {
    failed(problem);
  }
}

// `known`: audiences before a token was given; the page then opens the one that it added.
async function start(known = []) {
  try {
    const {body, stale} = await get('/v1/views');
    const audiences = body.audiences ?? [...new Set(body.views.map(view => view.audience))];
    Object.assign(state, {views: body.views.map(titled), audiences, audience: null, stale});
    const added = known.length > 0 && audiences.find(name => !known.includes(name));
    if (added) history.replaceState(null, '', `#/${encodeURIComponent(added)}`);
    await route();
    if (!state.views.length) setTimeout(() => state.views.length || byId('token') || start(), LOOK_MS);
  } catch (problem) {
    failed(problem);
  }
}

function failed(problem) {
  if (problem.status === 401) return token(state.views.length ? 'unknown' : '');
  if (problem.status === 404 || problem.status === 410) return nothing();
  const again = Date.now() + (problem.retry ?? 5) * 1000;
  state.down = {since: state.down?.since ?? Date.now(), again, type: problem.type};
  draw();
  setTimeout(() => start(), again - Date.now());
}

const heard = {
  up() {
    if (!state.down) return frame();
    state.down = null;
    frame();
    say('Live again.');
  },
  down(when) {
    const first = !state.down;
    state.down = when;
    frame();
    if (first) say(`Live updates stopped at ${clock(when.since)}.`);
  },
  views(views, stale) {
    if (views.some(({view}) => !positions.byView.has(view))) return start(); // one that is new: the stream does not have it
    Object.assign(state, {views: views.map(titled), stale});
    frame();
    sidebar();
  },
  ended: reason => token(reason),
  reset() {
    say('The releases were read again.');
    setTimeout(() => start(), READ_MS);
  },
  async event(name, data) {
    if (data.href) data = (await get(data.href)).body;
    const record = data.record ?? data, view = record.view ?? data.view, of = boards.get(view);
    if (name === 'expired') {
      of?.drop(data.window);
    } else {
      const {start, end} = edges(record.window), old = of?.byId.get(`${start}-${end}`), one = of?.loaded ? of.take(data) : fromAnswer(data);
      if (!one) return;
      told(view, one, old);
      newest(view, one);
    }
    if (view === state.view) draw();
    else sidebar();
    state.moved = null;
  },
};

// What came, in the live region; and where the bars come from, if one looks at the window.
function told(name, one, old) {
  const {title} = mine().find(view => view.view === name) ?? {title: name};
  if (one.before && one.state === 'sharper') {
    say(`${title}: more precise now, ±${num(one.release.noise_interval_95)} instead of ±${num(one.before.half)}.`);
    if (old && name === state.view && one.id === (state.window ?? boards.get(name).windows.at(-1).id)) state.moved = new Map(old.rows.map(row => [row.item, row.interval]));
  } else if (one.refusal && one.release) say(`${title}: a more precise version of ${span(one)} was refused. Nothing was taken back.`);
  else say(`${title}: ${one.state === 'lost' ? 'lost' : one.state === 'refused' ? 'refused' : 'new'}, ${span(one)}.`);
}

function newest(name, one) {
  const view = mine().find(each => each.view === name);
  if (!view || (view.newest && end(view.newest) > one.end)) return;
  Object.assign(view, {newest: {start: iso(one.start), end: iso(one.end)}, noise_interval_95: one.release?.noise_interval_95 ?? null, next_due: dueBehind(view, one)});
}

const end = newest => Date.parse(typeof newest === 'string' ? newest : newest.window?.end ?? newest.end);

function side() {
  const says = view => {
    if (!view.newest) return 'no window yet';
    const until = `to ${day(end(view.newest) - 1)}`;
    const half = view.noise_interval_95 ?? null;
    if (half === null) return `${until}, not released`;
    return ['keys', 'pure_topk'].includes(view.kind) ? until : `${until}, each count ±${num(half)}`; // it is not so of keys that were chosen by their noise
  };
  return h('nav', {class: 'side', id: 'views', 'aria-label': 'Views'}, h('ul', {}, mine().map(view => h('li', {},
    h('a', {href: address({view: view.view}), 'aria-current': view.view === state.view ? 'page' : null}, view.title, h('small', {}, says(view)))))));
}

// Nodes are replaced where they differ, so that the focus stays.
function sidebar() {
  const fresh = side(), old = byId('views');
  if (!old || fresh.isEqualNode(old)) return;
  const at = [...old.querySelectorAll('a')].indexOf(document.activeElement);
  old.replaceWith(fresh);
  fresh.querySelectorAll('a')[at]?.focus();
}

// The bar on top, and what is in the head of the page.
function frame() {
  const {audiences, down, stale} = state;
  swap('audiences', (audiences.length > 1 ? audiences.map(name => h('a', {
    href: `#/${encodeURIComponent(name)}`,
    'aria-current': name === state.audience ? 'page' : null}, name)) : audiences.map(name => h('span', {class: 'muted'}, `for ${name}`))));
  byId('live').className = `live ${down || stale ? 'off' : ''}`;
  swap('live', (state.views.length || down ? [h('i', {'aria-hidden': 'true'}), down || stale ? 'Interrupted' : 'Live'] : []));
  byId('tokens').textContent = signedIn() ? 'Sign out' : 'Use a token';
  const seen = state.views.length > 0 && 'What you see came until then; nothing of it is wrong.';
  const text = down?.type === 'starting' ? ['The gateway is starting.', 'It reads what is there.']
    : stale || down?.type === 'broker_silent' ? ['Kafka does not answer the gateway.', seen]
      : down ? [seen ? `Live updates stopped at ${clock(down.since)}.` : 'The gateway does not answer.', seen] : null;
  swap('banner', (text ? [h('div', {class: 'bar', role: 'status'}, h('strong', {}, text[0]), text[1] && h('span', {}, text[1]),
    down && again(down), down && button('Try now', () => (stream && !stream.closed ? stream.again() : start()), {id: 'try'}))] : []));
}

function draw() {
  frame();
  const active = document.activeElement?.id, y = scrollY, open = byId('as-table')?.open, left = document.querySelector('.strip')?.scrollLeft;
  const view = current();
  document.title = view ? `${view.title} · stream-dp` : 'stream-dp';
  byId('body').replaceChildren(h('div', {class: 'frame'}, side(), h('main', {id: 'main', tabindex: -1}, main(view))));
  if (open && byId('as-table')) byId('as-table').open = true;
  const row = byId('views').firstChild, here = row.querySelector('[aria-current]');
  if (here) row.scrollLeft = here.offsetLeft - row.offsetLeft - 40;
  const strip = document.querySelector('.strip'), chosen = byId('window');
  if (strip && chosen) {
    strip.scrollLeft = left ?? strip.scrollWidth;
    const off = chosen.offsetLeft - strip.offsetLeft;
    if (off < strip.scrollLeft || off + 30 > strip.scrollLeft + strip.clientWidth) strip.scrollLeft = off - strip.clientWidth / 2;
  }
  scrollTo(0, y);
  if (active && active !== document.activeElement?.id) byId(active)?.focus({preventScroll: true});
}

function main(view) {
  if (state.absent) return absent();
  if (!state.views.length) return state.down ? muted('Nothing has come yet.') : [h('h1', {}, 'Nothing to read yet'), muted('There is no view for you yet. It will appear here.')];
  if (!view) return absent();
  const {windows, loaded, next} = board();
  if (!loaded) return [h('h1', {}, view.title), muted('Loading ...')];
  if (!windows.length) return first(view);
  const found = state.window ? windows.findIndex(w => w.id === state.window) : windows.length - 1;
  if (found < 0) return [h('h1', {}, view.title), card('This window is not here', h('p', {}, 'It is not released yet, or it is no longer kept.'), button('Newest window', () => go({window: null})))];
  return page(view, windows, found, next);
}

function page(view, windows, at, next) {
  const one = windows[at], known = new Set(windows.flatMap(w => w.rows.map(row => row.item)));
  const item = known.has(state.item) ? state.item : one.rows[0]?.item ?? [...known][0];
  const how = {item, unit: view.unit, go, all: state.all, moved: state.moved, smooth: state.smooth, windows}, {release} = one;
  const loss = release && part.loss(one, (type, ending) => save(one, type, ending));
  const shown = release && (!one.rows.length ? part.empty(one) : release.kind === 'gap' ? part.leads(one, how) : release.kind === 'keys' ? part.names(one, how) : part.bars(one, how));
  return [part.head(view, one), at === windows.length - 1 && due(view), part.strip(windows, at, {go, more: next && (() => load(true))}),
    h('div', {class: 'two'},
      h('div', {}, shown, one.refusal && part.refusal(one, how), (release?.minimum_count ?? release?.rank) !== undefined && one.rows.length > 0 && part.hidden(one),
        release && part.changed(windows, one, view.unit), one.rows.length < 9 && loss),
      h('div', {}, item !== undefined && oneKey(windows, one, how), one.rows.length >= 9 && loss)),
    state.audiences.length > 1 && (state.comparing ? part.compare(state.comparing, view.unit) : button('Compare with my other audiences', () => comparison(one), {id: 'compare'}))];
}

// When the next window is due, where the gateway says so. Why it is late cannot be known to a reader.
function due({next_due: text}) {
  if (!text) return null;
  return muted(`The next window ${Date.parse(text) + 10_000 < Date.now() ? 'was' : 'is'} due at ${moment(Date.parse(text))}.`);
}

// When the window behind one is due, where windows have one length.
function dueBehind({next_due: text, record}, one) {
  const {every_ms: every, grace_ms: grace} = record?.window ?? {};
  return text && every ? iso(Math.max(Date.parse(text), one.end + every + grace)) : null;
}

const first = view => [h('h1', {}, view.title), view.record && h('p', {class: 'lead-in'}, part.counted(view, view.kind, view.record.ledger.population)), card('No window yet', h('p', {}, 'The first window has not ended yet, or it is not released yet. It will appear here.'), due(view))];
const absent = () => [h('h1', {}, 'Nothing at this address'), card(null, h('p', {}, 'There is nothing here that you may read. Choose a view, or use a token.'), h('p', {}, h('a', {href: '#/'}, 'To the views')))];
function nothing() {
  state.views = state.views.filter(view => view !== current());
  state.absent = true;
  draw();
}

const pathOf = one => `/v1/views/${encodeURIComponent(state.view)}/windows/${encodeURIComponent(iso(one.start))}`;

async function comparison(one) {
  state.comparing = await Promise.all(state.audiences.map(async audience => {
    const answer = await get(pathOf(one), {audience, end: iso(one.end)}).catch(() => null);
    return {audience, one: answer && fromAnswer(answer.body)};
  }));
  draw();
}

async function save(one, type, ending) {
  try {
    const link = h('a', {href: URL.createObjectURL(await file(pathOf(one), {audience: state.audience, end: iso(one.end)}, type)), download: `${state.view}-${short(one.start)}.${ending}`.replaceAll(':', '')});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  } catch {
    say('The file could not be loaded.');
  }
}

// One page with a field for a token. What was shown is removed.
function token(reason) {
  const known = reason ? [] : state.audiences;
  stream?.close();
  Object.assign(state, {views: [], audiences: [], audience: null, view: null, window: null, item: null, down: null, comparing: null});
  boards = new Map();
  history.replaceState(null, '', location.pathname);
  frame();
  const about = 'You need a token to read here. Whoever runs stream-dp makes one with ';
  askForToken(reason, {title: 'Read releases', about, command: 'stream-dp token new', done: () => start(known)});
}

byId('tokens').addEventListener('click', async () => {
  if (byId('tokens').textContent === 'Use a token') return token('');
  await signOut().catch(() => null);
  state.views = [];
  stream?.close();
  await start();
});
shell(() => (state.views.length ? draw() : frame()), () => state.down);
addEventListener('hashchange', route);
start();
