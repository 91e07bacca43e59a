// The status page. It asks the API of the machine that it comes from, with the token of its address,
// and only ever looks. What pods say is put into the page as text, never as markup.
'use strict';

const HIGHEST_WAIT = 10000, EVENTS = 60;
const $ = id => document.getElementById(id);
const state = { pods: new Map(), events: new Map(), nodes: new Map() };
const alive = { pods: false, events: false, nodes: false };
const open = new Set();

// The token leaves the address bar at once; a reload of this tab still knows it.
function findToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get('token');
  if (given) {
    sessionStorage.setItem('token', given);
    history.replaceState(null, '', location.pathname);
  }
  return sessionStorage.getItem('token');
}

function note(text) {
  $('note').textContent = text;
  $('note').hidden = !text;
}

// An element with a class, and texts or elements in it.
function el(tag, kind, ...inner) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.append(...inner.filter(part => part !== null && part !== ''));
  return made;
}

function age(time) {
  const s = Math.max(0, Math.floor((Date.now() - Date.parse(time)) / 1000));
  if (isNaN(s)) return '';
  if (s < 120) return s + 's';
  if (s < 7200) return Math.floor(s / 60) + 'm';
  if (s < 172800) return Math.floor(s / 3600) + 'h';
  return Math.floor(s / 86400) + 'd';
}

// What is to be watched stays apart for each resource: one that breaks off is listed anew.
async function follow(resource, token) {
  const headers = { Authorization: 'Bearer ' + token };
  for (let wait = 500; ; wait = Math.min(wait * 2, HIGHEST_WAIT)) {
    try {
      const list = await fetch('/api/v1/' + resource, { headers, cache: 'no-store' });
      if (list.status === 401 || list.status === 403) return refused();
      if (!list.ok) throw new Error(list.status);
      const all = await list.json();
      state[resource] = new Map(all.items.map(o => [key(o), o]));
      show(resource, true);
      wait = 500;
      const from = '?watch=1&resourceVersion=' + all.metadata.resourceVersion;
      const answer = await fetch('/api/v1/' + resource + from, { headers, cache: 'no-store' });
      if (!answer.ok) throw new Error(answer.status);
      await lines(answer.body, line => take(resource, JSON.parse(line)));
    } catch (e) {
      if (e.name === 'SyntaxError') console.error(e);
    }
    show(resource, false);
    await new Promise(done => setTimeout(done, wait));
  }
}

async function lines(body, each) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ''; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    for (const line of parts) if (line && !each(line)) return reader.cancel();
  }
}

// False when the objects have to be listed anew.
function take(resource, { type, object }) {
  if (type === 'ERROR') return false;
  if (type === 'DELETED') state[resource].delete(key(object));
  else if (type !== 'BOOKMARK') state[resource].set(key(object), object);
  show(resource, true);
  return true;
}

const key = o => [o.metadata.namespace, o.metadata.name, o.metadata.uid].join('/');

function refused() {
  sessionStorage.removeItem('token');
  note('The token of this page is not accepted. Open the address that “cleat dashboard” prints.');
  $('live').textContent = 'refused';
}

let drawn = 0;
function show(resource, lives) {
  alive[resource] = lives;
  // However many changes come, it is drawn once for each picture.
  if (!drawn) drawn = requestAnimationFrame(draw);
}

function draw() {
  drawn = 0;
  const on = Object.values(alive).every(Boolean);
  $('live').textContent = on ? 'live' : 'connecting';
  $('live').className = on ? 'on' : '';
  drawNode();
  drawPods();
  drawEvents();
}

// What the node uses is measured only when somebody asks.
async function measure(token) {
  const headers = { Authorization: 'Bearer ' + token };
  const answer = await fetch('/apis/metrics.k8s.io/v1beta1/nodes', { headers, cache: 'no-store' }).catch(() => null);
  used = answer && answer.ok ? ((await answer.json()).items[0] || {}).usage : null;
  drawNode();
}

let used = null;
const UNITS = { n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };
function amount(text) {
  const [, number, unit] = /^([0-9.e+-]+?)([a-zA-Z]*)$/.exec(text || '0') || [0, '0', ''];
  return Number(number) * (UNITS[unit] || 1);
}

function bytes(n) {
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (n < 1024) return (n < 10 && unit !== 'B' ? n.toFixed(1) : Math.round(n)) + ' ' + unit;
    n /= 1024;
  }
  return n.toFixed(1) + ' TiB';
}

function drawNode() {
  const node = state.nodes.values().next().value;
  if (!node) return;
  const status = node.status;
  const ready = (status.conditions || []).find(c => c.type === 'Ready') || {};
  const good = ready.status === 'True';
  $('node').textContent = document.title = node.metadata.name;
  $('ready').textContent = good ? 'Ready' : 'NotReady';
  $('ready').className = 'word ' + (good ? 'good' : 'bad');
  const info = status.nodeInfo || {};
  const address = (status.addresses || []).filter(a => a.type === 'InternalIP').map(a => a.address).join(', ');
  const facts = [['Address', address], ['Runtime', info.containerRuntimeVersion], ['System', info.osImage],
    ['Kernel', info.kernelVersion], ['Agent', info.kubeletVersion], ['Why', good ? '' : ready.message]];
  $('facts').replaceChildren(...facts.filter(f => f[1]).flatMap(f => [el('dt', '', f[0]), el('dd', '', f[1])]));
  const running = [...state.pods.values()].filter(p => !['Succeeded', 'Failed'].includes(p.status.phase));
  const requested = name => running.reduce((sum, pod) => sum + pod.spec.containers.reduce((inner, c) =>
    inner + amount(((c.resources || {}).requests || {})[name]), 0), 0);
  const bar = (title, taken, of, shown) => {
    const part = of ? Math.min(100, 100 * taken / of) : 0;
    const fill = el('i', '');
    fill.style.width = part + '%';
    return el('div', 'resource', el('div', 'row', title, el('span', 'dim end', shown(taken) + ' of ' + shown(of))), el('div', 'bar', fill));
  };
  const has = status.allocatable || {};
  const cores = n => Math.round(n * 100) / 100 + '';
  const all = status.capacity || {};
  const measured = !used ? [] : [bar('CPUs used', amount(used.cpu), amount(all.cpu), cores),
    bar('Memory used', amount(used.memory), amount(all.memory), bytes)];
  const bars = [...measured, bar('CPUs requested', requested('cpu'), amount(has.cpu), cores),
    bar('Memory requested', requested('memory'), amount(has.memory), bytes),
    bar('Pods', running.length, amount(has.pods), cores)];
  $('resources').replaceChildren(...bars);
}

const statuses = pod => [...(pod.status.initContainerStatuses || []), ...(pod.status.containerStatuses || [])];

// The word that tells most of a pod, and how it is meant.
function word(pod) {
  const { phase, reason } = pod.status;
  let told = reason || phase || 'Pending';
  if (phase !== 'Succeeded') {
    for (const s of statuses(pod)) {
      const waiting = s.state && s.state.waiting && s.state.waiting.reason;
      const ended = s.state && s.state.terminated;
      if (waiting && waiting !== 'PodInitializing') told = waiting;
      else if (ended && ended.exitCode) told = ended.reason || 'Error';
    }
  }
  if (pod.metadata.deletionTimestamp) told = 'Terminating';
  const allReady = (pod.status.containerStatuses || []).every(s => s.ready);
  const tone = told === 'Running' ? (allReady ? 'good' : 'middling')
    : told === 'Succeeded' || told === 'Completed' ? 'dim'
      : ['Pending', 'ContainerCreating', 'Terminating'].includes(told) ? 'middling' : 'bad';
  return [told, tone];
}

function told(s) {
  const of = s || {};
  if (of.running) return 'running for ' + age(of.running.startedAt);
  if (of.terminated) {
    const t = of.terminated;
    return `ended ${age(t.finishedAt)} ago with ${t.exitCode}` + (t.reason ? ` (${t.reason})` : '') + (t.message ? ': ' + t.message : '');
  }
  const w = of.waiting || {};
  return 'waits: ' + (w.reason || '') + (w.message ? ': ' + w.message : '');
}

function drawPods() {
  const pods = [...state.pods.values()].map(pod => [pod, ...word(pod)]);
  const rank = tone => ['bad', 'middling', 'good', 'dim'].indexOf(tone);
  pods.sort((a, b) => rank(a[2]) - rank(b[2]) || (key(a[0]) < key(b[0]) ? -1 : 1));
  const bad = pods.filter(p => p[2] === 'bad').length;
  $('counts').textContent = pods.length + (bad ? `, ${bad} in trouble` : '');
  const items = pods.map(([pod, status, tone]) => {
    const all = statuses(pod), main = pod.status.containerStatuses || [];
    const restarts = all.reduce((sum, s) => sum + s.restartCount, 0);
    const head = el('summary', '', el('div', 'row',
      el('span', 'name', pod.metadata.name), el('span', 'word ' + tone, status),
      el('span', 'dim end', `${main.filter(s => s.ready).length}/${pod.spec.containers.length} ready`,
        restarts ? `, ${restarts} restart${restarts > 1 ? 's' : ''}` : '', ', ' + age(pod.metadata.creationTimestamp))));
    const wrong = all.filter(s => s.state && ((s.state.waiting && tone === 'bad') || (s.state.terminated && s.state.terminated.exitCode)));
    for (const s of wrong) {
      const last = s.lastState && s.lastState.terminated ? '; before: ' + told(s.lastState) : '';
      head.append(el('div', 'why', `${s.name} ${told(s.state)}${last}`));
    }
    if (pod.status.message) head.append(el('div', 'why', pod.status.message));
    const facts = [['Namespace', pod.metadata.namespace], ['Address', pod.status.podIP]];
    for (const c of [...(pod.spec.initContainers || []), ...pod.spec.containers]) {
      const s = all.find(s => s.name === c.name) || {};
      facts.push([c.name, c.image + ', ' + told(s.state)]);
    }
    const item = el('details', '', head,
      el('dl', '', ...facts.filter(f => f[1]).flatMap(f => [el('dt', '', f[0]), el('dd', '', f[1])])));
    item.open = open.has(key(pod));
    item.addEventListener('toggle', () => item.open ? open.add(key(pod)) : open.delete(key(pod)));
    const line = el('li', '', item);
    line.dataset.pod = pod.metadata.name;
    line.dataset.status = status;
    return line;
  });
  $('pods').replaceChildren(...(items.length ? items : [el('li', 'dim', 'No pods.')]));
}

function drawEvents() {
  const all = [...state.events.values()];
  all.sort((a, b) => a.lastTimestamp < b.lastTimestamp ? 1 : -1);
  const items = all.slice(0, EVENTS).map(e => el('li', '',
    el('div', 'row', el('span', 'word ' + (e.type === 'Warning' ? 'bad' : 'dim'), e.reason),
      el('span', '', e.involvedObject.name),
      el('span', 'dim end', (e.count > 1 ? `${e.count} times, ` : '') + age(e.lastTimestamp))),
    el('div', '', e.message)));
  $('events').replaceChildren(...(items.length ? items : [el('li', 'dim', 'No events.')]));
}

const token = findToken();
if (token) {
  Object.keys(state).forEach(resource => follow(resource, token));
  // What says how old something is has to be said again.
  setInterval(() => document.hidden || draw(), 10000);
  const look = () => document.hidden || measure(token);
  setInterval(look, 15000);
  look();
} else {
  $('live').textContent = '';
  note('This page needs a token. On the node, as root, “cleat dashboard” prints the address with it.');
}
addEventListener('hashchange', () => location.reload());
