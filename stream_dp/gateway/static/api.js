// The gateway's protocol: answers, the session, and one stream of events that mends itself.

export class Problem extends Error {
  constructor(status, body, retry) {
    super(body?.title ?? `status ${status}`);
    Object.assign(this, {status, type: body?.type ?? '', body: body ?? {}, retry});
  }
}

async function ask(path, options) {
  const answer = await fetch(path, {credentials: 'same-origin', signal: AbortSignal.timeout(12000), ...options});
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => null);
  throw new Problem(answer.status, body, Number(answer.headers.get('Retry-After')) || null);
}

const address = (path, params) => {
  const pairs = Object.entries(params).flatMap(([name, value]) => [value ?? []].flat().map(one => [name, one]));
  return pairs.length ? `${path}?${new URLSearchParams(pairs)}` : path;
};

export async function get(path, params = {}) {
  const answer = await ask(address(path, params), {headers: {Accept: 'application/json'}});
  const stale = (answer.headers.get('Warning') ?? '').startsWith('110');
  return {body: await answer.json(), position: answer.headers.get('Stream-Position'), stale};
}

export const file = async (path, params, type) => (await ask(address(path, params), {headers: {Accept: type}})).blob();
export const windowsOf = view => `/v1/views/${encodeURIComponent(view)}/windows`;

const json = {'Content-Type': 'application/json'};
export async function send(method, path, body) {
  const answer = await ask(path, {method, headers: json, body: body && JSON.stringify(body)});
  return answer.status === 204 ? null : answer.json();
}

// Scripts cannot see the cookie, so what this browser did is noted; the note holds no token.
const NOTE = 'stream-dp signed in';
export const signedIn = () => localStorage.getItem(NOTE) !== null;
export async function signIn(token) {
  await ask('/v1/session', {method: 'POST', headers: json, body: JSON.stringify({token})});
  localStorage.setItem(NOTE, '');
}
export function signOut() {
  localStorage.removeItem(NOTE);
  return ask('/v1/session', {method: 'DELETE', headers: json});
}

// Positions by view, of the form "view.topic-offset~view.topic-offset".
export class Positions {
  constructor() {
    this.byView = new Map();
  }

  take(text, view) {
    for (const part of (text ?? '').split('~').filter(Boolean)) {
      const dot = part.lastIndexOf('.');
      if (dot >= 0) this.byView.set(part.slice(0, dot), part.slice(dot + 1));
      else if (view) this.byView.set(view, part);
    }
  }

  // Whether a position of a view lies behind what we have, or in another topic.
  misses(view, position) {
    const mine = this.byView.get(view);
    if (!position || !mine) return false;
    const topic = text => text.slice(0, 8), offset = text => Number(text.slice(9));
    return topic(position) !== topic(mine) || offset(position) > offset(mine);
  }

  get text() {
    return [...this.byView].map(([view, position]) => `${view}.${position}`).join('~');
  }
}

const WATCH_MS = 15000, MOST_WAIT_S = 30;
const jitter = seconds => seconds * (0.8 + 0.4 * Math.random());

/* The events of an audience's views, over one connection.

   EventSource tells nothing of comments, so the heartbeat is not seen here. Instead the list of views is asked for
   every 15 s (mostly a 304): no answer within 12 s is an interruption, and positions that the stream has not
   brought twice in a row is a stream that died in silence. `on` has up, down, event, reset, ended. */
export class Stream {
  constructor(audience, positions, on) {
    Object.assign(this, {audience, positions, on, tries: 0, behind: '', closed: false});
    this.open();
  }

  get events() { return ['release', 'refusal', 'expired']; }
  get asked() { return {audience: this.audience, view: [...this.positions.byView.keys()]}; }

  open() {
    if (this.closed) return;
    clearTimeout(this.timer);
    this.source?.close();
    const source = this.source = new EventSource(address('/v1/events', {...this.asked, after: this.positions.text}));
    source.onopen = () => this.alive();
    source.onerror = () => this.lost();
    for (const name of [...this.events, 'reset', 'bye']) {
      source.addEventListener(name, message => source === this.source && this.hear(name, message));
    }
    this.watch();
  }

  alive() {
    this.tries = 0;
    this.heard = Date.now();
    this.on.up();
  }

  hear(name, message) {
    this.alive();
    const data = JSON.parse(message.data || '{}');
    this.positions.take(message.lastEventId, data.view ?? data.record?.view);
    if (name === 'bye') {
      if (data.reason === 'revoked' || data.reason === 'expired') return this.end(data.reason);
      return this.lost(data.retry_after_s);
    }
    if (name === 'reset') {
      this.close();
      return this.on.reset(data.reason);
    }
    return this.on.event(name, data);
  }

  lost(wait) {
    if (this.closed) return;
    this.source?.close();
    clearTimeout(this.timer);
    const seconds = wait ?? jitter(Math.min(MOST_WAIT_S, 2 ** this.tries++));
    this.on.down({since: this.heard ?? Date.now(), again: Date.now() + seconds * 1000});
    this.timer = setTimeout(() => this.again(), seconds * 1000);
  }

  // Ask before the stream is opened again: EventSource does not say why it was refused.
  async again() {
    if (await this.probe()) this.open();
  }

  watch() {
    this.timer = setTimeout(async () => {
      if (await this.probe()) this.watch();
    }, WATCH_MS);
  }

  async probe() {
    clearTimeout(this.timer);
    try {
      const late = await this.late();
      if (this.closed) return false;
      const dead = late !== '' && late === this.behind;
      this.behind = late === this.behind ? '' : late;
      if (dead) this.open();
      else if (this.source?.readyState === EventSource.OPEN) this.heard = Date.now();
      return !dead;
    } catch (problem) {
      if (this.closed) return false;
      if (problem.status === 401 || problem.status === 404) this.end('unknown');
      else this.lost(problem.retry ?? undefined);
      return false;
    }
  }

  // The positions that the stream should have brought.
  async late() {
    const {body, stale} = await get('/v1/views', {audience: this.audience});
    if (this.closed) return '';
    this.on.views(body.views, stale);
    return body.views.filter(one => this.positions.misses(one.view, one.position)).map(one => one.position).join();
  }

  end(reason) {
    this.close();
    this.on.ended(reason);
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.source?.close();
  }
}
