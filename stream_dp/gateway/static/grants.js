// Grants: who was let see what, one for later taken back, and a new one.
import {button, h, muted} from './dom.js';
import {at, prose, table} from './standing.js';
import {list, num} from './words.js';

const WINDOWS = {all: 'all windows', retained: 'windows released before it starts', future: 'windows released after it starts'};

function scope({views, windows, start_from: from, start_until: until}) {
  const starts = [from && `from ${at(Date.parse(from))}`, until && `before ${at(Date.parse(until))}`].filter(Boolean).join(' and ');
  return `${views.length ? list(views) : 'all views'}, ${starts ? `windows that start ${starts}` : WINDOWS[windows]}`;
}

const sees = ({audience, level}) => (level === 'none' ? `${audience} sees nothing more` : `${audience} sees ${level}`);

// `act`: weigh, give, takeBack, words of a problem; none for who may only look.
export function grants(given, act) {
  const said = h('p', {role: 'alert', class: 'faults'});
  const takeBack = async one => {
    try {
      await act.takeBack(one.id);
    } catch (problem) {
      if (problem.status === 401) return act.ended();
      said.replaceChildren(...prose(act.words(problem).join(' ')));
    }
  };
  const rows = [...given].reverse().map(one => [sees(one), scope(one), `${one.waits ? 'starts' : 'in effect since'} ${at(Date.parse(one.time))}`,
    one.waits && act ? button('Take back', () => takeBack(one), {'aria-label': `Take back: ${sees(one)}`, id: `back-${one.id}`}) : '']);
  return h('section', {class: 'card', id: 'grants'}, h('h2', {}, 'Grants'),
    given.length ? table('Grants', ['What', 'Of', 'When', ''], rows) : muted('None: every audience sees what the settings say.'), said);
}

const noise = n => (n === null ? 'none' : `±${num(n)}`);

function effect({view, before, after, direction, difference, noise_interval_95: half}) {
  if (direction === 'ended') return `${view}: nothing more is published, until a newer grant. What was published stays.`;
  if (direction === 'same') return `${view}: stays at ${after}.`;
  const steps = `${view}: ${before} (${noise(half.before)}) → ${after} (${noise(half.after)}).`;
  if (direction === 'coarser') return `${steps} What was published stays, and becomes no finer.`;
  if (Number(difference) === 0) return `${steps} That costs nothing more.`;
  return `${steps} A window costs up to ${difference} more (epsilon; rho in a ledger with a pool), unless another audience has it as fine already.`;
}

const field = (label, input) => h('label', {class: 'field'}, label, input);
const options = (names, words = name => name) => names.map(name => h('option', {value: name}, words(name)));

// First what it means is asked for; then it is agreed to.
export function grantForm({audiences, ladders, views}, act) {
  const reads = name => Object.keys(views).filter(view => !views[view].audiences || [views[view].audiences].flat().includes(name));
  const levels = [...new Set(Object.values(ladders).flatMap(ladder => ladder.map(one => one.level))), 'none'];
  const audience = h('select', {id: 'grant-audience', onchange: () => boxes()}, options(Object.keys(audiences)));
  const level = h('select', {id: 'grant-level'}, options(levels, name => (name === 'none' ? 'none: nothing more is published' : name)));
  const windows = h('select', {id: 'grant-windows'}, options(Object.keys(WINDOWS), name => WINDOWS[name]));
  const when = h('input', {id: 'grant-at', type: 'text', placeholder: 'now, or 2026-07-01T06:00:00Z', autocomplete: 'off', spellcheck: 'false'});
  const which = h('fieldset', {id: 'grant-views'}), said = h('div', {id: 'grant-said', role: 'status'});
  const boxes = () => which.replaceChildren(h('legend', {}, 'Views (none ticked: all)'), ...reads(audience.value).map(name => h('label', {}, h('input', {type: 'checkbox', value: name}), name)));
  const refused = problem => (problem.status === 401 ? act.ended() : said.replaceChildren(...act.words(problem).map(text => h('p', {class: 'faults'}, prose(text)))));
  const show = (grant, {plan, changes}, again = '') => {
    const agree = h('input', {type: 'checkbox', id: 'grant-agree', onchange: () => { give.disabled = !agree.checked; }});
    const give = button('Grant', async () => {
      give.disabled = true;
      try {
        await act.give(grant, plan);
        said.replaceChildren(h('p', {class: 'note'}, `Granted: ${sees(grant)}.`));
      } catch (problem) {
        if (problem.type === 'plan_changed') show(grant, problem.body.now, 'Nothing was granted: this is what it means now. ');
        else refused(problem);
      }
    }, {class: 'main', id: 'grant-give', disabled: true});
    said.replaceChildren(h('p', {}, again, h('strong', {}, `${sees(grant)}, ${scope(grant)}, ${grant.at ? `from ${grant.at} on` : 'now'}.`)), h('ul', {}, changes.map(one => h('li', {}, effect(one)))),
      muted('A finer level publishes windows again with less noise, and the budget pays for it. What was published cannot be taken back.'),
      h('label', {class: 'tick'}, agree, 'I have read what this means and costs.'), give);
  };
  const weigh = async event => {
    event.preventDefault();
    const chosen = [...which.querySelectorAll(':checked')].map(box => box.value);
    const grant = {audience: audience.value, level: level.value, views: chosen, windows: windows.value, at: when.value.trim() || null};
    try {
      show(grant, await act.weigh(grant));
    } catch (problem) {
      refused(problem);
    }
  };
  boxes();
  return h('section', {class: 'card'}, h('details', {id: 'grant-new'}, h('summary', {}, 'New grant'), h('form', {onsubmit: weigh, oninput: () => said.replaceChildren()},
    field('Audience', audience), field('Level', level), which, field('Windows', windows), field('Starts (UTC)', when), h('button', {type: 'submit', id: 'grant-weigh'}, 'Show what it means')), said));
}
