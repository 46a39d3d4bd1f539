// Elements. Text reaches the page as text nodes only; nothing here or elsewhere parses HTML.

export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value);
    // Styles by CSSOM: the content security policy forbids inline ones.
    else if (name === 'css') for (const [key, x] of Object.entries(value)) element.style.setProperty(key, x);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(9).filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

export const byId = id => document.getElementById(id);
export const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const button = (text, onclick, props = {}) => h('button', {type: 'button', onclick, ...props}, text);
export const card = (title, ...children) => h('section', {class: 'card'}, title && h('h2', {}, title), children);
export const muted = (...children) => h('p', {class: 'muted'}, children);
