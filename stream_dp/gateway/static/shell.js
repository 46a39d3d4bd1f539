// What both pages have: the head, the theme, the bar of an interruption, the form for a token.
import {signIn} from './api.js';
import {byId, h} from './dom.js';

const SAID_MS = 10000;

// Say something to screen readers. What comes at once is read one after the other; `instead`: this takes the place of what was not read yet.
export function say(text, instead = false) {
  if (!text) return;
  const line = h('p', {}, text);
  if (instead) byId('say').replaceChildren();
  byId('say').append(line);
  setTimeout(() => line.remove(), SAID_MS);
}

// Nodes are replaced where they differ, so that the focus stays.
export function swap(id, nodes) {
  const old = byId(id), fresh = old.cloneNode(false), active = document.activeElement?.id;
  fresh.append(...nodes);
  if (fresh.isEqualNode(old)) return;
  old.replaceChildren(...fresh.childNodes);
  if (active && active !== document.activeElement?.id) byId(active)?.focus();
}

const waits = ({again}) => {
  const seconds = Math.ceil((again - Date.now()) / 1000);
  return seconds > 0 ? `Trying again in ${seconds} s.` : 'Trying again ...';
};
export const again = down => h('span', {id: 'again', 'aria-hidden': 'true'}, waits(down));

// `draw` draws the page anew: colours and widths of charts are read when they are drawn.
export function shell(draw, down) {
  const root = document.documentElement, dark = matchMedia('(prefers-color-scheme: dark)');
  const theme = name => {
    root.dataset.theme = name;
    byId('theme').textContent = name === 'dark' ? 'Light' : 'Dark';
  };
  theme(dark.matches ? 'dark' : 'light');
  dark.addEventListener('change', () => { theme(dark.matches ? 'dark' : 'light'); draw(); });
  byId('theme').addEventListener('click', () => { theme(root.dataset.theme === 'dark' ? 'light' : 'dark'); draw(); });
  byId('skip').addEventListener('click', event => { event.preventDefault(); byId('main').focus(); });
  let resized, width = innerWidth;
  addEventListener('resize', () => {
    clearTimeout(resized);
    resized = setTimeout(() => { if (innerWidth !== width) draw(); width = innerWidth; }, 150);
  });
  setInterval(() => { if (down() && byId('again')) byId('again').textContent = waits(down()); }, 1000);
}

const ENDED = {revoked: 'Your token was revoked.', expired: 'Your token has ended.', unknown: 'Your token is not known, or it has ended.'};
const WRONG = {401: 'This token is not known, or it has ended.', 403: 'Tokens are accepted over https only.', 429: 'Too many attempts. Try again in a minute.'};

export function askForToken(reason, {title, about, command, done}) {
  document.title = 'stream-dp';
  const field = h('input', {id: 'token', type: 'password', autocomplete: 'off', required: true, spellcheck: 'false', 'aria-describedby': 'wrong'});
  const wrong = h('p', {id: 'wrong', class: 'wrong', role: 'alert'});
  const send = async event => {
    event.preventDefault();
    try {
      await signIn(field.value.trim());
      await done();
    } catch (problem) {
      wrong.textContent = WRONG[problem.status] ?? 'The gateway does not answer. Try again.';
      field.focus();
    }
  };
  byId('body').replaceChildren(h('main', {id: 'main', tabindex: -1, class: 'pad'}, h('form', {class: 'card token', onsubmit: send},
    h('h1', {}, reason ? ENDED[reason] : title), reason && h('p', {}, 'What was shown has been removed from this page.'),
    h('p', {}, about, h('code', {}, command), '.'),
    h('label', {for: 'token'}, 'Token'), field, wrong, h('button', {class: 'main', type: 'submit'}, 'Read'))));
  field.focus();
  say(ENDED[reason] ?? '');
}
