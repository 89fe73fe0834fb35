// SPDX-License-Identifier: Apache-2.0
/*
 * The script of the pages: it draws the charts, keeps them and the facts beside them up to date, and
 * sorts, filters and compares runs. Without it, every page shows the same data as the server drew them.
 *
 *   elements, numbers   making elements; text from outside only ever becomes text, never markup
 *   View, Chart         a picture of columns (mean, low, high); charts of one view share range and crosshair
 *   Loader              asks for the columns of what is on the screen, as many as it has pixels
 *   Live                server-sent events: nothing is asked for, and nothing sent, while nothing is new
 *   run, compare, queue the three pages
 */
'use strict';
(() => {
/* ---- elements, numbers ---- */

const find = (selector, root = document) => root.querySelector(selector);
const findAll = (selector, root = document) => [...root.querySelectorAll(selector)];

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter(child => child != null));
  return element;
}

function numberText(value) {
  if (typeof value !== 'number' || Number.isNaN(value)) return '–';
  const size = Math.abs(value);
  if (size < 1e7 && (Number.isInteger(value) || size >= 1e4)) return Math.round(value).toLocaleString('en-US');
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return (+value.toPrecision(4)).toExponential();
  return value.toPrecision(5).replace(/\.?0+$/, '');
}

function durationText(seconds) {
  if (!(seconds >= 0)) return '–';
  const units = [[86400, 'd'], [3600, 'h'], [60, 'min']];
  for (const [length, unit] of units) {
    if (seconds >= 2 * length) return (seconds / length).toPrecision(3).replace(/\.?0+$/, '') + ' ' + unit;
  }
  return seconds.toPrecision(3).replace(/\.?0+$/, '') + ' s';
}

function debounce(wait_ms, call) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(call, wait_ms); };
}

async function getJson(url, signal) {
  const response = await fetch(url, {signal});
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || response.statusText);
  return answer;
}

/*
 * What the reader chose, in the address, so that a copied link shows the same: which runs are
 * compared in its query, which the server needs too, all else after #, which stays in the browser.
 */
const asked = new URLSearchParams(location.hash.slice(1));
function keep(name, value) {
  if (value == null || value === '' || value === false) asked.delete(name);
  else asked.set(name, value);
  const choice = asked.toString();
  history.replaceState(null, '', location.pathname + location.search + (choice ? '#' + choice : ''));
}
const askedNumber = name => (asked.has(name) && asked.get(name) !== '' ? Number(asked.get(name)) : null);

/* ---- colours: those of the style sheet, which follow the reader's scheme ---- */

const scheme = matchMedia('(prefers-color-scheme: dark)');
let ink = {};
function readInk() {
  const style = getComputedStyle(document.documentElement);
  const read = name => style.getPropertyValue('--' + name).trim();
  ink = {text: read('ink'), dim: read('dim'), edge: read('edge'), card: read('card'), bad: read('bad'),
    colors: [0, 1, 2, 3, 4, 5, 6, 7].map(i => read('c' + i))};
}
const colorOf = i => ink.colors[i % ink.colors.length];

/* ---- scales ---- */

function ticks(min, max, wanted) {
  const rough = (max - min) / Math.max(wanted, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= rough) || power;
  const list = [];
  for (let i = Math.ceil(min / step); i * step <= max + step * 1e-9 && list.length < 50; i++) list.push(i * step);
  return list;
}

function logTicks(min, max) {
  const list = [], low = Math.floor(Math.log10(min)), high = Math.ceil(Math.log10(max));
  const every = Math.ceil((high - low) / 6) || 1;
  for (let p = low; p <= high; p++) {
    for (const m of high - low <= 2 ? [1, 2, 5] : p % every === 0 ? [1] : []) {
      const tick = m * 10 ** p;
      if (tick >= min && tick <= max) list.push(tick);
    }
  }
  return list;
}

function tickText(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return +(value / 1e9).toPrecision(4) + 'G';
  if (size >= 1e6) return +(value / 1e6).toPrecision(4) + 'M';
  if (size >= 1e4) return +(value / 1e3).toPrecision(4) + 'k';
  if (size !== 0 && size < 1e-3) return (+value.toPrecision(3)).toExponential();
  return String(+value.toPrecision(6));
}

/* From data to pixels: a scale that can be inverted. */
function makeScale(min, max, from, to, isLog) {
  const f = isLog ? Math.log : x => x, g = isLog ? Math.exp : x => x;
  const a = f(min), span = f(max) - a || 1;
  return {min, max, isLog, at: v => from + (f(v) - a) / span * (to - from), back: p => g(a + (p - from) / (to - from) * span)};
}

/* Index of the value in rising `x` that is nearest to `value`. */
function nearest(x, value) {
  let low = 0, high = x.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < value) low = middle + 1; else high = middle;
  }
  return low > 0 && value - x[low - 1] < x[low] - value ? low - 1 : low;
}

/* ---- View: what the charts of a page share ---- */

const views = [];

class View {
  constructor() {
    views.push(this);
    this.charts = [];
    this.from = askedNumber('from');
    this.to = askedNumber('to');
    this.smooth = askedNumber('smooth') || 0;
    this.logX = asked.has('logx');
    this.cross = null;
    this.follow = () => {};
  }
  extent() {
    let min = Infinity, max = -Infinity;
    for (const chart of this.charts) {
      for (const s of chart.series) {
        if (s.x.length) {
          min = Math.min(min, s.x[0]);
          max = Math.max(max, s.x[s.x.length - 1]);
        }
      }
    }
    return min <= max ? [min, max] : [0, 1];
  }
  range() {
    const [min, max] = this.from == null || this.to == null ? this.whole || this.extent() : [0, 0];
    return [this.from ?? min, this.to ?? max];
  }
  /* Shows from..to, null: all there is. */
  show(from, to) {
    const [min, max] = this.whole || this.extent();
    if (from != null && to != null) {
      const least = (max - min) * 1e-7 || 1;
      if (to - from < least) return;
      from = Math.max(from, min);
      to = Math.min(to, max);
      if (!(from < to)) return;
    }
    const all = from == null || (from <= min && to >= max);
    this.from = all ? null : from;
    this.to = all ? null : to;
    keep('from', all ? null : +from.toPrecision(12));
    keep('to', all ? null : +to.toPrecision(12));
    this.draw();
    this.follow();
  }
  /* Moves by a share of the range and zooms by a factor around `middle`. */
  move(share) {
    const [from, to] = this.range(), [min, max] = this.whole || this.extent();
    const by = Math.max(min - from, Math.min(max - to, share * (to - from)));
    this.show(from + by, to + by);
  }
  zoom(factor, middle) {
    const [from, to] = this.range(), at = middle ?? (from + to) / 2;
    this.show(at - (at - from) * factor, at + (to - at) * factor);
  }
  point(cross, from) {
    this.cross = cross;
    for (const chart of this.charts) if (chart.isSeen) chart.drawCross(chart === from);
  }
  draw() { for (const chart of this.charts) chart.draw(); }
}

/* ---- Chart ---- */

const PAD = {left: 54, right: 10, top: 8, bottom: 22};

class Chart {
  constructor(figure, view, title) {
    this.figure = figure;
    this.view = view;
    this.key = figure.dataset.key;
    this.title = title || this.key;
    this.series = []; /* {name, color, x, mean, low, high} */
    this.isSeen = false;
    this.isLog = asked.getAll('logy').includes(this.key);
    view.charts.push(this);
  }

  /* When it is seen first: of a hundred charts, most never are. */
  show() {
    this.isSeen = true;
    if (this.canvas) return;
    this.canvas = make('canvas', {tabindex: 0, role: 'img', 'aria-label': this.title, 'aria-roledescription': 'chart'});
    this.over = make('canvas', {class: 'over', 'aria-hidden': 'true'});
    this.said = make('output', {class: 'said', 'aria-live': 'polite'});
    this.log = make('button', {type: 'button', 'aria-pressed': String(this.isLog), title: 'logarithmic values',
      click: () => this.toggleLog()}, 'log');
    this.table = make('details', {class: 'values', toggle: () => this.fillTable()}, make('summary', {}, 'values'));
    find('figcaption', this.figure).append(this.said, this.log);
    this.figure.append(make('div', {class: 'plot'}, this.canvas, this.over), this.table);
    this.listen();
  }

  listen() {
    const place = event => event.clientX - this.canvas.getBoundingClientRect().left;
    this.canvas.addEventListener('pointermove', event => {
      if (this.drag) this.dragTo(place(event));
      else if (this.scaleX) this.view.point(this.scaleX.back(place(event)), this);
    });
    this.canvas.addEventListener('pointerleave', () => { if (!this.drag) this.view.point(null, this); });
    this.canvas.addEventListener('pointerdown', event => {
      if (event.button !== 0 || !this.scaleX) return;
      this.drag = {from: place(event), to: place(event), pans: event.shiftKey || event.pointerType === 'touch',
        range: this.view.range()};
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener('pointerup', () => this.endDrag());
    this.canvas.addEventListener('pointercancel', () => { this.drag = null; this.drawCross(); });
    this.canvas.addEventListener('dblclick', () => this.view.show(null, null));
    this.canvas.addEventListener('wheel', event => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.view.zoom(2 ** (event.deltaY / 300), this.scaleX.back(place(event)));
    }, {passive: false});
    this.canvas.addEventListener('keydown', event => this.press(event));
    this.canvas.addEventListener('blur', () => this.view.point(null, this));
  }

  dragTo(at) {
    this.drag.to = at;
    if (this.drag.pans) {
      const [from, to] = this.drag.range;
      const by = (this.drag.from - at) / (this.width - PAD.left - PAD.right) * (to - from);
      this.view.show(from + by, to + by);
    } else {
      this.drawCross();
    }
  }

  endDrag() {
    const drag = this.drag;
    this.drag = null;
    if (drag && !drag.pans && Math.abs(drag.to - drag.from) > 5) {
      const ends = [this.scaleX.back(drag.from), this.scaleX.back(drag.to)].sort((a, b) => a - b);
      this.view.show(ends[0], ends[1]);
    } else {
      this.drawCross();
    }
  }

  press(event) {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    const ends = {Home: 0, End: 1};
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (step && event.shiftKey) this.view.move(0.2 * step);
    else if (step) this.stepCross(step);
    else if (event.key in ends) this.view.point(this.view.range()[ends[event.key]], this);
    else if (event.key === '+' || event.key === '=') this.view.zoom(0.5, this.view.cross);
    else if (event.key === '-') this.view.zoom(2, this.view.cross);
    else if (event.key === '0' || event.key === 'Escape') this.view.show(null, null);
    else if (event.key === 'l') this.toggleLog();
    else return;
    event.preventDefault();
  }

  stepCross(by) {
    const x = this.series[0]?.x;
    if (!x || !x.length) return;
    const [from, to] = this.view.range();
    const i = this.view.cross == null ? nearest(x, by > 0 ? from : to) : nearest(x, this.view.cross) + by;
    this.view.point(x[Math.max(0, Math.min(x.length - 1, i))], this);
  }

  toggleLog() {
    this.isLog = !this.isLog;
    this.log.setAttribute('aria-pressed', String(this.isLog));
    const others = asked.getAll('logy').filter(key => key !== this.key);
    asked.delete('logy');
    for (const key of this.isLog ? [...others, this.key] : others) asked.append('logy', key);
    keep('', null);
    this.draw();
  }

  set(series) {
    this.series = series;
    this.figure.classList.toggle('empty', !series.some(s => s.x.length));
    this.draw();
    if (this.table?.open) this.fillTable();
  }

  /* The lowest and highest value of what is shown. */
  extremes(from, to) {
    let low = Infinity, high = -Infinity;
    for (const s of this.series) {
      for (let i = 0; i < s.x.length; i++) {
        if (s.x[i] < from || s.x[i] > to) continue;
        if (s.low[i] < low && (!this.isLog || s.low[i] > 0)) low = s.low[i];
        if (s.high[i] > high) high = s.high[i];
      }
    }
    if (!(low <= high)) return this.isLog ? [0.1, 1] : [0, 1];
    if (low === high) return this.isLog ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
    const pad = (high - low) * 0.04;
    return this.isLog ? [low / 1.05, high * 1.05] : [low - pad, high + pad];
  }

  /* Size and pen of a canvas, sharp on every screen. */
  pen(canvas) {
    const scale = window.devicePixelRatio || 1;
    const width = Math.round(this.width * scale), height = Math.round(this.height * scale);
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    }
    const g = canvas.getContext('2d');
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.clearRect(0, 0, this.width, this.height);
    g.font = '12px system-ui, sans-serif';
    return g;
  }

  draw() {
    if (!this.isSeen) return;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    if (this.width < 80) return;
    const g = this.pen(this.canvas);
    let [from, to] = this.view.range();
    const logX = this.view.logX && to > 0;
    if (logX) from = Math.max(from, this.view.firstPositive?.() || 1);
    if (!(from < to)) to = from + 1;
    const [low, high] = this.extremes(from, to);
    this.scaleX = makeScale(from, to, PAD.left, this.width - PAD.right, logX);
    this.scaleY = makeScale(low, high, this.height - PAD.bottom, PAD.top, this.isLog);
    this.drawAxes(g);
    g.save();
    g.beginPath();
    g.rect(PAD.left, 0, this.width - PAD.left - PAD.right, this.height - PAD.bottom + 1);
    g.clip();
    for (const s of this.series) this.drawBand(g, s);
    for (const s of this.series) this.drawLine(g, s);
    g.restore();
    this.describe();
    this.drawCross();
  }

  drawAxes(g) {
    const {scaleX: x, scaleY: y} = this;
    g.strokeStyle = ink.edge;
    g.fillStyle = ink.dim;
    g.lineWidth = 1;
    g.textAlign = 'right';
    g.textBaseline = 'middle';
    for (const tick of y.isLog ? logTicks(y.min, y.max) : ticks(y.min, y.max, this.height / 42)) {
      const at = Math.round(y.at(tick)) + 0.5;
      g.beginPath();
      g.moveTo(PAD.left, at);
      g.lineTo(this.width - PAD.right, at);
      g.stroke();
      g.fillText(tickText(tick), PAD.left - 6, at);
    }
    g.textAlign = 'center';
    g.textBaseline = 'top';
    for (const tick of x.isLog ? logTicks(x.min, x.max) : ticks(x.min, x.max, this.width / 110)) {
      const half = g.measureText(tickText(tick)).width / 2;
      g.fillText(tickText(tick), Math.min(x.at(tick), this.width - half - 1), this.height - PAD.bottom + 6);
    }
    if (!this.series.some(s => s.x.length)) {
      g.fillText(this.isLoaded ? 'no data' : 'loading', this.width / 2, this.height / 2 - 12);
    }
  }

  /* From the lowest to the highest value of every column: no extreme is hidden. */
  drawBand(g, s) {
    g.strokeStyle = s.color;
    g.globalAlpha = this.series.length > 8 ? 0.12 : 0.3;
    g.lineWidth = Math.max(1, Math.min(4, (this.width - PAD.left) / Math.max(s.x.length, 1)));
    g.beginPath();
    for (let i = 0; i < s.x.length; i++) {
      if (s.low[i] < s.high[i]) {
        const at = this.scaleX.at(s.x[i]), bottom = this.scaleY.at(Math.max(s.low[i], this.isLog ? this.scaleY.min : -Infinity));
        const top = this.scaleY.at(s.high[i]);
        g.moveTo(at, Math.max(bottom, top + 1));
        g.lineTo(at, top);
      }
    }
    g.stroke();
    /* A value that is not a number has no height: a mark at the bottom shows where it is. */
    g.globalAlpha = 1;
    g.fillStyle = ink.bad;
    for (const i of s.odd) g.fillRect(this.scaleX.at(s.x[i]) - 1, this.height - PAD.bottom - 8, 3, 8);
  }

  drawLine(g, s) {
    const smooth = this.view.smooth > 0 ? smoothed(s, this.view.smooth) : null;
    g.strokeStyle = s.color;
    g.lineJoin = 'round';
    g.globalAlpha = smooth ? 0.35 : 1;
    g.lineWidth = smooth ? 1 : 1.7;
    this.stroke(g, s.x, s.mean);
    if (smooth) {
      g.globalAlpha = 1;
      g.lineWidth = 2.2;
      this.stroke(g, s.x, smooth);
    }
    g.globalAlpha = 1;
  }

  stroke(g, x, values) {
    let open = false;
    g.beginPath();
    for (let i = 0; i < x.length; i++) {
      const drawn = Number.isFinite(values[i]) && (!this.isLog || values[i] > 0);
      if (drawn && open) g.lineTo(this.scaleX.at(x[i]), this.scaleY.at(values[i]));
      else if (drawn) g.moveTo(this.scaleX.at(x[i]), this.scaleY.at(values[i]));
      if (drawn && !open && !(Number.isFinite(values[i + 1]))) { /* alone: a dot */
        g.arc(this.scaleX.at(x[i]), this.scaleY.at(values[i]), 1.2, 0, 7);
      }
      open = drawn;
    }
    g.stroke();
  }

  describe() {
    const s = this.series[0];
    if (!s || !s.x.length) return;
    const last = s.x.length - 1;
    let low = Infinity, high = -Infinity;
    for (let i = 0; i <= last; i++) { low = Math.min(low, s.low[i] || Infinity, Infinity); high = Math.max(high, s.high[i] || -Infinity); }
    const shown = this.series.length === 1
      ? `${this.title}: ${numberText(s.mean[last])} at ${numberText(s.x[last])}, from ${numberText(low)} to ${numberText(high)}`
      : `${this.title} of ${this.series.length} runs`;
    this.canvas.setAttribute('aria-label', shown + '. Arrow keys read values, plus and minus zoom.');
    if (this.view.cross == null) this.said.textContent = this.series.length === 1 ? numberText(s.mean[last]) : '';
  }

  drawCross(speaks = false) {
    if (!this.scaleX) return;
    const g = this.pen(this.over), cross = this.view.cross;
    if (this.drag && !this.drag.pans) {
      g.fillStyle = ink.colors[0];
      g.globalAlpha = 0.15;
      g.fillRect(Math.min(this.drag.from, this.drag.to), PAD.top, Math.abs(this.drag.to - this.drag.from), this.height - PAD.top - PAD.bottom);
      g.globalAlpha = 1;
    }
    if (cross == null) { this.describe(); return; }
    const at = Math.round(this.scaleX.at(cross)) + 0.5;
    g.strokeStyle = ink.dim;
    g.lineWidth = 1;
    g.beginPath();
    g.moveTo(at, PAD.top);
    g.lineTo(at, this.height - PAD.bottom);
    g.stroke();
    const found = this.series.filter(s => s.x.length && cross >= s.x[0] && cross <= s.x[s.x.length - 1])
      .map(s => ({s, i: nearest(s.x, cross)}));
    for (const {s, i} of found.length > 12 ? [] : found) {
      if (!Number.isFinite(s.mean[i])) continue;
      g.fillStyle = s.color;
      g.beginPath();
      g.arc(this.scaleX.at(s.x[i]), this.scaleY.at(s.mean[i]), 3.5, 0, 7);
      g.fill();
    }
    this.say(found, speaks);
  }

  say(found, speaks) {
    if (this.series.length === 1) {
      const {s, i} = found[0] || {};
      const band = s && s.low[i] < s.high[i] ? ` (${numberText(s.low[i])} to ${numberText(s.high[i])})` : '';
      this.said.textContent = s ? `${numberText(s.x[i])}: ${numberText(s.mean[i])}${band}` : '';
    } else if (speaks) {
      found.sort((a, b) => a.s.mean[a.i] - b.s.mean[b.i]);
      const few = found.slice(0, 5).map(({s, i}) => `${s.name} ${numberText(s.mean[i])}`);
      this.said.textContent = `${numberText(this.view.cross)}: ${few.join(', ')}${found.length > 5 ? ', …' : ''}`;
    }
  }

  /* The table of the chart, for who does not see it, and for copying. */
  fillTable() {
    find('table', this.table)?.remove();
    if (!this.table.open) return;
    const rows = [];
    for (const s of this.series) {
      for (let i = 0; i < s.x.length && rows.length < 2000; i++) {
        const cells = [s.x[i], s.mean[i], s.low[i], s.high[i]].map(v => make('td', {class: 'n'}, numberText(v)));
        rows.push(make('tr', {}, this.series.length > 1 ? make('td', {}, s.name) : null, ...cells));
      }
    }
    const names = [...(this.series.length > 1 ? ['run'] : []), this.view.unit || 'step', 'mean', 'lowest', 'highest'];
    this.table.append(make('table', {}, make('caption', {}, this.title),
      make('thead', {}, make('tr', {}, ...names.map(n => make('th', {scope: 'col'}, n)))), make('tbody', {}, ...rows)));
  }
}

/* Mean of the columns within `width` / 2 on either side. */
function smoothed(s, width) {
  const out = new Float64Array(s.x.length);
  let first = 0, next = 0, sum = 0, count = 0;
  for (let i = 0; i < s.x.length; i++) {
    for (; next < s.x.length && s.x[next] <= s.x[i] + width / 2; next++) {
      if (Number.isFinite(s.mean[next])) { sum += s.mean[next]; count++; }
    }
    for (; s.x[first] < s.x[i] - width / 2; first++) {
      if (Number.isFinite(s.mean[first])) { sum -= s.mean[first]; count--; }
    }
    out[i] = count > 0 ? sum / count : NaN;
  }
  return out;
}

const column = list => Float64Array.from(list || [], v => (v === null ? NaN : v));
/* odd: [[column, 'nan']]: columns with values that are not finite. */
const seriesOf = (columns, name, color) => ({name, color, x: column(columns?.step), mean: column(columns?.mean),
  low: column(columns?.low), high: column(columns?.high), odd: (columns?.odd || []).map(([i]) => i),
  whole: columns?.step?.at(-1) ?? 0}); /* whole: no step up to this one is missing */

/* ---- Loader: columns of what is on the screen ---- */

class Loader {
  /* take(keys, points, range, signal): asks the server and hands each chart its series. */
  constructor(view, take) {
    this.view = view;
    this.take = take;
    this.stale = new Set();
    this.watcher = new IntersectionObserver(entries => this.look(entries), {rootMargin: '120px'});
    view.follow = debounce(90, () => this.again());
    let width = document.body.clientWidth;
    addEventListener('resize', debounce(120, () => {
      if (width !== document.body.clientWidth) this.again();
      width = document.body.clientWidth;
    }));
  }
  add(chart) {
    this.stale.add(chart);
    this.watcher.observe(chart.figure);
  }
  look(entries) {
    for (const entry of entries) {
      const chart = this.view.charts.find(c => c.figure === entry.target);
      if (chart) {
        if (entry.isIntersecting) chart.show(); else chart.isSeen = false;
        chart.draw();
      }
    }
    this.load();
  }
  again() {
    for (const chart of this.view.charts) this.stale.add(chart);
    this.load();
  }
  async load() {
    const wanted = [...this.stale].filter(chart => chart.isSeen && !chart.figure.hidden);
    if (!wanted.length) return;
    for (const chart of wanted) this.stale.delete(chart);
    const points = Math.max(50, Math.round((wanted[0].canvas.clientWidth - PAD.left - PAD.right) / 50) * 50);
    const whole = this.view.from == null;
    try {
      await this.take(wanted, points, whole ? null : this.view.range());
      for (const chart of wanted) chart.isLoaded = true;
      if (whole) this.view.whole = this.view.extent();
      this.view.draw();
      tell('');
      performance.mark('charts-drawn'); /* bench/page.py and the tests wait for these */
    } catch (error) {
      for (const chart of wanted) this.stale.add(chart);
      tell(`The server did not answer: ${error.message}`);
    }
  }
}

function tell(text) {
  const place = find('#told');
  if (place) place.textContent = text;
}

/* ---- Live ---- */

/*
 * hear: {event name: call(data)}. The browser reconnects by itself; what was missed meanwhile is
 * told by `reset`. A page in the background listens, but draws nothing.
 */
function listen(hear) {
  const source = new EventSource('/v1/events');
  const state = find('#live');
  const show = (text, look) => { if (state) { state.textContent = text; state.className = look; } };
  source.onopen = () => show('live', 'good');
  source.onerror = () => show('not connected', 'bad');
  for (const [name, call] of Object.entries(hear)) {
    source.addEventListener(name, event => {
      let data = null;
      try { data = JSON.parse(event.data); } catch { return; }
      call(data);
    });
  }
  addEventListener('pagehide', () => source.close());
}

/* Loads this page again and takes over the parts that the server draws, where they differ. */
async function refresh() {
  const response = await fetch(location.href);
  if (!response.ok) return document;
  const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
  for (const part of findAll('[data-live]')) {
    const next = fresh.getElementById(part.id);
    if (!next || next.outerHTML === part.served) continue;
    const open = findAll('details[open]', part).map(d => find('summary', d)?.textContent);
    const focus = part.contains(document.activeElement) ? document.activeElement : null;
    /* somebody types there, or is in the middle of a click, which would be lost: the next time */
    if (focus?.matches('input, select, textarea') || part.matches(':active')) continue;
    part.served = next.outerHTML;
    part.replaceChildren(...next.childNodes);
    if (focus) findAll(focus.tagName, part).find(e => e.href === focus.href && e.textContent === focus.textContent)?.focus({preventScroll: true});
    for (const d of findAll('details', part)) d.open = d.open || open.includes(find('summary', d)?.textContent);
  }
  return fresh;
}

/* Calls at most once each `pause_ms`, and `pause_ms` after the first call at the latest: many
 * viewers of a run that is fast must not cost more than those of a slow one. */
function sparingly(pause_ms, call) {
  let timer = 0, last = 0;
  return () => {
    if (timer) return;
    timer = setTimeout(async () => {
      last = Date.now();
      try { await call(); } catch { /* the next call tells whether the server is there */ } finally { timer = 0; }
    }, Math.max(0, last + pause_ms - Date.now()));
  };
}

/* ---- what run and compare share: the tools above the charts ---- */

function showTools(view) {
  const tools = find('#tools');
  tools.hidden = false;
  const smooth = find('[name=smooth]', tools), logX = find('[name=logx]', tools), filter = find('[name=metric]', tools);
  const toSteps = value => (value > 0 ? 10 ** (value / 100 * Math.log10(Math.max(view.extent()[1] / 4, 10))) : 0);
  smooth.value = view.smooth > 0 ? 100 * Math.log10(view.smooth) / Math.log10(Math.max(view.extent()[1] / 4, 10)) : 0;
  smooth.addEventListener('input', () => {
    view.smooth = Math.round(toSteps(Number(smooth.value)));
    keep('smooth', view.smooth || null);
    view.draw();
  });
  logX.checked = view.logX;
  logX.addEventListener('change', () => {
    view.logX = logX.checked;
    keep('logx', view.logX ? '1' : null);
    view.draw();
  });
  filter.value = asked.get('metric') || '';
  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    keep('metric', filter.value);
    for (const chart of view.charts) {
      chart.figure.hidden = words.length > 0 && !words.some(word => chart.key.toLowerCase().includes(word));
    }
  };
  filter.addEventListener('input', apply);
  apply();
  const acts = {out: () => view.zoom(2), in: () => view.zoom(0.5), back: () => view.move(-0.5), on: () => view.move(0.5),
    all: () => view.show(null, null)};
  for (const button of findAll('button[data-act]', tools)) button.addEventListener('click', acts[button.dataset.act]);
}

/* ---- the page of a run ---- */

function startRun(place) {
  const id = place.dataset.run, view = new View();
  const addressOf = (keys, points, range) => `/v1/runs/${encodeURIComponent(id)}/metrics?points=${points}` +
    `&keys=${keys.map(encodeURIComponent).join(',')}` + (range ? `&from=${Math.floor(range[0])}&to=${Math.ceil(range[1])}` : '');
  const loader = new Loader(view, async (charts, points, range) => {
    const answer = await getJson(addressOf(charts.map(c => c.key), points, range));
    for (const chart of charts) chart.set([seriesOf(answer.keys[chart.key], chart.key, colorOf(0))]);
  });
  /* The page of a run that has just begun has no charts yet, and metrics may join later. */
  const takeFigures = page => {
    const known = new Set(view.charts.map(chart => chart.key));
    for (const figure of findAll('#charts figure.chart', page)) {
      if (known.has(figure.dataset.key)) continue;
      if (page !== document) place.append(figure);
      loader.add(new Chart(figure, view));
    }
    find('#no-charts')?.toggleAttribute('hidden', view.charts.length > 0);
  };
  takeFigures(document);
  showTools(view);
  startNotes(id);
  /* Asks for what is new since the last answer, at most once a second; when the new columns are
   * more than the screen has, all are merged again. */
  const catchUp = sparingly(2000, async () => {
    const charts = view.charts.filter(chart => chart.isSeen && chart.series.length && !chart.figure.hidden);
    const since = Math.min(...charts.map(chart => chart.series[0].whole));
    if (view.from != null || !charts.length) return;
    if (charts.some(chart => chart.series[0].x.length > 1500)) { loader.again(); return; }
    const answer = await getJson(addressOf(charts.map(c => c.key), 200, [since + 1, Number.MAX_SAFE_INTEGER]));
    for (const chart of charts) {
      const s = chart.series[0], more = seriesOf(answer.keys[chart.key]);
      const kept = s.x.findIndex(x => x > since);
      extend(s, kept < 0 ? s.x.length : kept, more);
      s.whole = s.x[s.x.length - 1] ?? 0;
    }
    view.draw();
  });
  const facts = async () => takeFigures(await refresh());
  const soon = sparingly(1000, facts), later = sparingly(8000, facts);
  listen({
    step: data => {
      if (String(data.run ?? data.job) !== id || document.hidden) return;
      if (view.from == null) takeStep(view, data);
      catchUp();
      (view.charts.length ? later : soon)();
    },
    job: data => { if (String(data.job) === id) soon(); },
    reset: () => { soon(); loader.again(); },
  });
}

function joined(a, b, count) {
  const list = new Float64Array(count + b.length);
  list.set(a.subarray(0, count));
  list.set(b, count);
  return list;
}

/* Puts columns behind the first `count` of a series. */
function extend(s, count, more) {
  for (const name of ['x', 'mean', 'low', 'high']) s[name] = joined(s[name], more[name], count);
  s.odd = [...s.odd.filter(i => i < count), ...more.odd.map(i => i + count)];
}

/* An event has the newest step alone; those before it follow when the page catches up. */
function takeStep(view, data) {
  for (const chart of view.charts) {
    const value = data[chart.key], s = chart.series[0];
    if (!s || value === undefined || data.step <= s.x[s.x.length - 1]) continue;
    extend(s, s.x.length, seriesOf({step: [data.step], mean: [value], low: [value], high: [value], odd: value === null ? [[0]] : []}));
  }
  if (view.whole) view.whole[1] = Math.max(view.whole[1], data.step);
  requestAnimationFrame(() => {
    view.draw();
    performance.mark('step-drawn', {detail: data.step});
  });
}

function startNotes(id) {
  const form = find('#notes');
  if (!form) return;
  form.hidden = false;
  form.addEventListener('submit', async event => {
    event.preventDefault();
    const said = find('output', form);
    const tags = form.elements.tags.value.split(/[\s,]+/).filter(Boolean);
    try {
      const response = await fetch(`/v1/runs/${encodeURIComponent(id)}/notes`, {method: 'POST',
        headers: {'Content-Type': 'application/json'}, body: JSON.stringify({note: form.elements.note.value, tags})});
      said.textContent = response.ok ? 'saved' : (await response.json()).error;
    } catch (error) {
      said.textContent = `not saved: ${error.message}`;
    }
  });
}

/* ---- compare: the table of runs ---- */

const ROW = 34; /* height of a row, as in the style sheet */

/* Words, and conditions such as loss<2 or status=running; a run must meet them all. */
function filterOf(text) {
  const tests = text.split(/\s+/).filter(Boolean).map(word => {
    const parts = /^([a-z_]+)(<=|>=|<|>|=)(.+)$/.exec(word);
    if (!parts) return run => `${run.id} ${run.name} ${run.status}`.toLowerCase().includes(word.toLowerCase());
    const [, key, sign, value] = parts, number = Number(value);
    if (sign === '=') return run => String(run[key]).toLowerCase() === value.toLowerCase() || (run[key] != null && run[key] === number);
    return run => run[key] != null && {'<': run[key] < number, '>': run[key] > number, '<=': run[key] <= number, '>=': run[key] >= number}[sign];
  });
  return run => tests.every(test => test(run));
}

const COLUMNS = {name: 'run', status: 'status', step: 'step', steps: 'of', loss: 'loss', val_loss: 'validation loss',
  tokens_per_s: 'tokens/s', started: 'started', cost_usd: 'USD'};
const WORDS = new Set(['name', 'status']);

function cellText(run, key) {
  if (key === 'started') return run.started ? new Date(run.started * 1000).toISOString().slice(0, 16).replace('T', ' ') : '–';
  return typeof run[key] === 'number' ? numberText(run[key]) : run[key] ?? '–';
}

const GROUPS = {'': null, status: run => run.status,
  name: run => /^(.*?)[-_.]?\d*$/.exec(run.name)[1] || run.name, day: run => cellText(run, 'started').slice(0, 10)};

class RunTable {
  constructor(place, changed) {
    this.place = place;
    this.changed = changed;
    this.runs = [];
    this.shared = new Set();
    this.chosen = new Set((new URLSearchParams(location.search).get('runs') || '').split(',').filter(Boolean));
    this.sort = asked.get('sort') || 'started';
    this.up = asked.has('up');
    this.hidden = new Set((asked.get('hide') || 'steps').split(','));
    this.filter = find('[name=filter]');
    this.group = find('[name=group]');
    this.filter.value = asked.get('filter') || '';
    this.group.value = asked.get('group') || '';
    this.filter.addEventListener('input', debounce(60, () => { keep('filter', this.filter.value); this.arrange(); }));
    this.group.addEventListener('change', () => { keep('group', this.group.value); this.arrange(); });
    this.box = make('div', {class: 'rows', tabindex: 0, role: 'region', 'aria-label': 'runs'});
    this.table = make('table', {class: 'runs'}, make('thead'), make('tbody'));
    this.box.append(this.table);
    this.box.addEventListener('scroll', () => requestAnimationFrame(() => this.drawRows()));
    place.replaceChildren(this.box);
    this.buildColumns();
  }

  columns() { return Object.keys(COLUMNS).filter(key => !this.hidden.has(key)); }

  buildColumns() {
    const list = find('#columns');
    list.hidden = false;
    for (const [key, label] of Object.entries(COLUMNS)) {
      const box = make('input', {type: 'checkbox', checked: !this.hidden.has(key), change: () => {
        if (box.checked) this.hidden.delete(key); else this.hidden.add(key);
        keep('hide', [...this.hidden].join(','));
        this.arrange();
      }});
      list.append(make('label', {}, box, ' ' + label));
    }
  }

  /* Its name, with its id when others have the same name, as the jobs of a sweep do. */
  label(id) {
    const run = this.runs.find(r => r.id === id);
    return !run ? id : this.shared.has(run.name) ? `${run.name} (${id})` : run.name;
  }

  set(runs) {
    const names = new Set();
    this.shared = new Set(runs.map(run => run.name).filter(name => names.has(name) || !names.add(name)));
    this.runs = runs;
    this.arrange();
  }

  arrange() {
    const key = this.sort, sign = this.up ? 1 : -1, groupOf = GROUPS[this.group.value];
    const shown = this.runs.filter(filterOf(this.filter.value));
    shown.sort((a, b) => {
      const x = a[key], y = b[key];
      if (x == null || y == null) return (x == null) - (y == null);
      return sign * (typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y)));
    });
    this.rows = shown;
    if (groupOf) {
      const groups = new Map();
      for (const run of shown) (groups.get(groupOf(run)) || groups.set(groupOf(run), []).get(groupOf(run))).push(run);
      this.rows = [...groups].flatMap(([name, runs]) => [{isGroup: true, name, runs}, ...runs]);
    }
    find('#count').textContent = shown.length === this.runs.length ? `${shown.length} run${shown.length === 1 ? '' : 's'}` : `${shown.length} of ${this.runs.length} runs`;
    this.drawHead();
    this.drawRows();
    performance.mark('runs-drawn');
  }

  drawHead() {
    const cells = this.columns().map(key => {
      const order = this.sort === key ? (this.up ? 'ascending' : 'descending') : 'none';
      const button = make('button', {type: 'button', click: () => this.sortBy(key)}, COLUMNS[key]);
      return make('th', {scope: 'col', 'aria-sort': order, class: WORDS.has(key) ? null : 'n', 'data-key': key}, button);
    });
    find('thead', this.table).replaceChildren(make('tr', {}, make('th', {scope: 'col'}, make('span', {class: 'unseen'}, 'compare')), ...cells));
  }

  sortBy(key) {
    this.up = this.sort === key ? !this.up : WORDS.has(key);
    this.sort = key;
    keep('sort', key);
    keep('up', this.up ? '1' : null);
    this.arrange();
    find(`th[data-key="${key}"] button`, this.table).focus();
  }

  /* Only the rows on the screen exist; two empty ones stand for the rest. */
  drawRows() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 5);
    const last = Math.min(this.rows.length, first + Math.ceil((this.box.clientHeight || 480) / ROW) + 10);
    const space = rows => { const row = make('tr', {'aria-hidden': 'true', class: 'space'}); row.style.height = rows * ROW + 'px'; return row; };
    this.table.setAttribute('aria-rowcount', this.rows.length + 1);
    const drawn = this.rows.slice(first, last).map((run, i) => this.row(run, first + i));
    find('tbody', this.table).replaceChildren(space(first), ...drawn, space(this.rows.length - last));
  }

  row(run, i) {
    const columns = this.columns();
    if (run.isGroup) {
      const best = Math.min(...run.runs.map(r => r.val_loss ?? r.loss ?? Infinity));
      return make('tr', {class: 'group', 'aria-rowindex': i + 2}, make('td'),
        make('th', {colspan: columns.length, scope: 'rowgroup'}, `${run.name}: ${run.runs.length} run${run.runs.length === 1 ? '' : 's'}` + (best < Infinity ? `, best ${numberText(best)}` : '')));
    }
    const box = make('input', {type: 'checkbox', 'aria-label': `compare ${this.label(run.id)}`, checked: this.chosen.has(run.id),
      change: () => this.choose(run.id, box.checked)});
    const cells = columns.map(key => make('td', {class: WORDS.has(key) ? 'w' : 'n'},
      key === 'name' ? make('a', {href: '/runs/' + encodeURIComponent(run.id)}, this.label(run.id)) : cellText(run, key)));
    return make('tr', {'aria-rowindex': i + 2}, make('td', {}, box), ...cells);
  }

  choose(id, on) {
    if (on) this.chosen.add(id); else this.chosen.delete(id);
    const ids = [...this.chosen].map(encodeURIComponent).join(',');
    history.replaceState(null, '', '/compare' + (ids ? '?runs=' + ids : '') + location.hash);
    this.changed();
  }
}

/* ---- compare: curves over each other ---- */

/* The metric that counts up along the axis. */
const AXES = {step: null, tokens: 'tokens_seen', time: 'elapsed_s', money: 'elapsed_s'};
const UNITS = {step: 'step', tokens: 'tokens', time: 'seconds of training', money: 'USD'};

/* Where each step lies on the axis, from the columns of its metric; null where the run lacks it. */
function placesOf(steps, columns, axis, run) {
  if (axis === 'step') return steps;
  const at = column(columns?.step), sum = column(columns?.high);
  if (!at.length) return null;
  const last = sum[sum.length - 1], scale = axis === 'money' ? run?.cost_usd / last : 1;
  if (!(scale > 0)) return null;
  return steps.map(step => {
    const i = nearest(at, step);
    const j = at[i] > step ? i - 1 : i + 1;
    if (at[i] === step || j < 0 || j >= at.length) return sum[i] * scale;
    return (sum[i] + (sum[j] - sum[i]) * (step - at[i]) / (at[j] - at[i])) * scale;
  });
}

function startCompare(place) {
  const view = new View(), chosen = find('#chosen'), axis = find('[name=axis]'), charts = find('#charts');
  const keys = (asked.get('keys') || 'loss,val_loss').split(',').filter(Boolean);
  const table = new RunTable(place, debounce(30, () => { compare(); }));
  const loader = new Loader(view, load);
  axis.value = asked.get('axis') || 'step';
  axis.addEventListener('change', () => { keep('axis', axis.value); view.show(null, null); });

  async function load(wanted, points, range) {
    const ids = [...table.chosen], extra = AXES[axis.value];
    view.unit = UNITS[axis.value];
    if (!ids.length) { for (const chart of wanted) chart.set([]); return; }
    const all = [...new Set([...wanted.map(c => c.key), ...(extra ? [extra] : [])])];
    const columns = Math.min(points, Math.max(100, Math.round(8000 / ids.length)));
    const steps = range && axis.value === 'step' ? `&from=${Math.floor(range[0])}&to=${Math.ceil(range[1])}` : '';
    const answer = await getJson(`/v1/compare?runs=${ids.map(encodeURIComponent).join(',')}` +
      `&keys=${all.map(encodeURIComponent).join(',')}&points=${columns}${steps}`);
    const lacks = new Set();
    for (const chart of wanted) chart.set(answer.runs.flatMap((run, i) => one(run, chart.key, i, lacks)));
    legend(answer.runs, lacks);
  }

  function one(run, key, i, lacks) {
    const about = table.runs.find(r => r.id === run.run), columns = run.keys[key];
    if (!columns) return [];
    const s = seriesOf(columns, table.label(run.run), colorOf(i));
    const places = placesOf(s.x, run.keys[AXES[axis.value]], axis.value, about);
    if (!places) { lacks.add(s.name); return []; }
    s.x = places;
    return [s];
  }

  function legend(runs, lacks) {
    chosen.replaceChildren(...runs.map((run, i) => {
      const dot = make('span', {class: 'dot', 'aria-hidden': 'true'});
      dot.style.background = colorOf(i);
      return make('li', {}, dot, make('a', {href: '/runs/' + encodeURIComponent(run.run)}, table.label(run.run)), ' ',
        make('button', {type: 'button', 'aria-label': `leave out ${table.label(run.run)}`, click: () => {
          table.choose(run.run, false);
          table.drawRows();
        }}, '×'));
    }));
    tell(lacks.size ? `${[...lacks].slice(0, 5).join(', ')}: no ${UNITS[axis.value]} recorded, so not drawn on this axis` : '');
  }

  function addChart(key) {
    const figure = make('figure', {class: 'chart', 'data-key': key}, make('figcaption', {}, make('b', {}, key)));
    charts.append(figure);
    loader.add(new Chart(figure, view));
  }

  async function chooseKeys() {
    const list = find('#keys'), first = [...table.chosen][0];
    if (!first || list.dataset.of === first) return;
    list.dataset.of = first;
    const names = Object.keys((await getJson(`/v1/runs/${encodeURIComponent(first)}/metrics?points=1`)).keys);
    list.replaceChildren(...names.map(name => {
      const box = make('input', {type: 'checkbox', checked: keys.includes(name), change: () => {
        if (box.checked) { keys.push(name); addChart(name); } else drop(name);
        keep('keys', keys.join(','));
      }});
      return make('label', {}, box, ' ' + name);
    }));
  }

  function drop(name) {
    keys.splice(keys.indexOf(name), 1);
    const chart = view.charts.find(c => c.key === name);
    view.charts.splice(view.charts.indexOf(chart), 1);
    chart.figure.remove();
  }

  async function compare() {
    view.whole = null;
    find('#compared').hidden = table.chosen.size === 0;
    loader.again();
    chooseKeys();
    await refresh(); /* the difference of the settings, which the server draws */
    drawParallel();
  }

  for (const key of keys) addChart(key);
  showTools(view);
  const update = async () => { table.set((await getJson('/v1/runs')).runs); };
  update().then(() => { if (table.chosen.size) compare(); });
  const later = sparingly(2000, update), again = sparingly(5000, () => loader.again());
  listen({job: later, reset: later, step: data => { if (table.chosen.has(String(data.run ?? data.job))) again(); }});
}

/* ---- compare: parallel coordinates, from the table of differences ---- */

function drawParallel() {
  const table = find('#differences table'), place = find('#parallel');
  if (!table || !place) return;
  const names = findAll('thead th', table).map(th => th.textContent);
  const rows = findAll('tbody tr', table).map(tr => [...tr.children].map(td => td.textContent));
  const axes = names.map((name, i) => ({name, i})).slice(1).filter(({i}) => new Set(rows.map(r => r[i])).size > 1);
  place.hidden = axes.length < 2 || rows.length < 3;
  if (place.hidden) return;
  const W = Math.max(place.clientWidth - 24, 120 + 84 * (axes.length - 1)), H = 310, top = 54, gap = (W - 120) / (axes.length - 1);
  const svg = (tag, attributes, text) => {
    const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [k, v] of Object.entries(attributes)) element.setAttribute(k, v);
    if (text != null) element.textContent = text;
    return element;
  };
  const picture = svg('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': 'each run as a line through its settings and results; the table below has the numbers'});
  axes.forEach((axis, k) => {
    const values = rows.map(r => r[axis.i]), numbers = values.map(v => (v.trim() === '' ? NaN : Number(v)));
    const isNumber = numbers.every(v => !Number.isNaN(v)), words = [...new Set(values)].sort();
    const isLog = isNumber && Math.min(...numbers) > 0 && Math.max(...numbers) / Math.min(...numbers) > 50;
    const scale = isNumber ? makeScale(Math.min(...numbers), Math.max(...numbers), H - 30, top, isLog)
      : makeScale(0, Math.max(words.length - 1, 1), H - 30, top, false);
    axis.x = 60 + k * gap;
    axis.at = r => (isNumber ? scale.at(Number(r[axis.i])) : scale.at(words.indexOf(r[axis.i])));
    picture.append(svg('line', {x1: axis.x, x2: axis.x, y1: top, y2: H - 30, class: 'axis'}),
      svg('text', {x: axis.x, y: k % 2 ? 28 : 14, 'text-anchor': 'middle'}, axis.name),
      svg('text', {x: axis.x, y: H - 14, 'text-anchor': 'middle', class: 'end'}, isNumber ? numberText(Math.min(...numbers)) : words[0]),
      svg('text', {x: axis.x, y: top - 7, 'text-anchor': 'middle', class: 'end'}, isNumber ? numberText(Math.max(...numbers)) : words[words.length - 1]));
  });
  for (const [n, r] of rows.entries()) {
    const line = svg('polyline', {points: axes.map(a => `${a.x},${a.at(r)}`).join(' '), class: 'run', stroke: colorOf(n)});
    line.append(svg('title', {}, r[0]));
    picture.append(line);
  }
  picture.style.minWidth = `${W}px`;
  find('svg', place)?.remove();
  place.append(picture);
}

/* ---- the page of the cluster ---- */

function startCluster() {
  const soon = sparingly(300, refresh);
  listen({job: soon, alert: soon, reset: soon, step: sparingly(8000, refresh)});
}

/* ---- the start ---- */

readInk();
scheme.addEventListener('change', () => { readInk(); for (const view of views) view.draw(); });
const run = find('[data-run]'), runs = find('#runs');
if (run) startRun(run);
else if (runs) startCompare(runs);
else startCluster();
})();
