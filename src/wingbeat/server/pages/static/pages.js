// Keeps an open page as the server would draw it now, without losing where the reader is.
// All HTML comes from this server, escaped there; nothing here makes HTML from text.

const main = document.getElementById("main");
const status = document.getElementById("live");
const NARROW = "(max-width: 60rem)";
const LOG_LINES = 2000;

// --- Replacing what changed, and only that

function fragment(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

function same(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
}

// Makes `old` like `fresh`. What the reader opened or closed stays, as do logs and reports that are being read.
function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  // A log that is followed ends with its own stream, which may still have lines to bring.
  if (old.dataset.keep !== undefined && old.childNodes.length) return;
  const attributes = (element) => [...element.attributes].filter((a) => !(a.name === "open" && element.localName === "details"));
  for (const { name } of attributes(old)) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of attributes(fresh)) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (fresh.dataset.lazy !== undefined && old.childElementCount > 1) return;
  morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    let found = at;
    if (next.id) {
      found = null;
      for (let each = at; each; each = each.nextSibling) if (same(each, next)) { found = each; break; }
    }
    if (found && same(found, next)) {
      if (found === at) at = at.nextSibling;
      else old.insertBefore(found, at);
      morph(found, next);
    } else {
      old.insertBefore(next, at);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

async function ask(address) {
  const response = await fetch(address, { headers: { accept: "application/json" }, cache: "no-store" });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

function say(text) {
  status.hidden = !text;
  status.textContent = text;
}

// --- Times: in the reader's zone, and durations that grow

function dress(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const today = at.toDateString() === new Date().toDateString();
    const clock = at.toLocaleTimeString(undefined, { hour12: false });
    const text = today && time.dataset.whole === undefined ? clock : `${at.toLocaleDateString("sv")} ${clock}`;
    if (time.textContent !== text) time.textContent = text;
    time.title = time.dateTime;
  }
}

function spanWords(seconds) {
  if (seconds < 0.9995) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  for (const [unit, size, part, partSize] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
    if (whole >= size) return `${Math.floor(whole / size)} ${unit} ${Math.floor((whole % size) / partSize)} ${part}`;
  }
  return `${whole} s`;
}

function tick() {
  const now = Date.now();
  for (const each of document.querySelectorAll(".duration[data-since]")) {
    const text = spanWords((now - Date.parse(each.dataset.since)) / 1000);
    if (each.textContent !== text) each.textContent = text;
  }
}

// --- The chosen action

let panelAsked = 0;

async function showPanel(action, attempt, { user = false } = {}) {
  const asked = ++panelAsked;
  const query = new URLSearchParams({ i: action });
  if (attempt) query.set("attempt", attempt);
  let answer;
  try {
    answer = await ask(`${main.dataset.panel}?${query}`);
  } catch (error) {
    if (user) say(`The action could not be shown: ${error.message}`);
    return;
  }
  if (asked !== panelAsked) return;
  const holder = document.getElementById("action");
  const content = fragment(answer.html);
  dress(content);
  const old = holder.firstElementChild;
  if (old && old.id === content.firstElementChild.id) morph(old, content.firstElementChild);
  else holder.replaceChildren(content);
  followLog();
  if (!user) return;
  mark(action);
  if (matchMedia(NARROW).matches) holder.scrollIntoView({ behavior: "instant", block: "start" });
  holder.focus({ preventScroll: true });
}

function mark(action) {
  for (const link of document.querySelectorAll("#actions a[data-choose]")) {
    if (link.dataset.choose === action) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

function chosen() {
  const panel = document.querySelector("#action .panel");
  return panel ? { action: panel.dataset.i, attempt: panel.dataset.attempt } : {};
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  if (link.dataset.choose && main.dataset.panel) {
    event.preventDefault();
    const address = new URL(link.href);
    address.hash = "";
    history.pushState(null, "", address);
    showPanel(link.dataset.choose, link.dataset.attempt, { user: true });
  } else if (link.classList.contains("more")) {
    const holder = link.closest("li.action");
    if (!holder) return;
    event.preventDefault();
    refreshBranch(holder, link.dataset.limit);
  }
});

addEventListener("popstate", () => {
  const query = new URLSearchParams(location.search);
  const first = document.querySelector("#tree > li.action");
  const action = query.get("i") || first?.dataset.i;
  if (main.dataset.panel && action) showPanel(action, query.get("attempt"), { user: true });
});

// --- The tree

const asking = new Set();
const again = new Map();  // id to the limit that was asked for meanwhile

// Draws anew what is below one action; `limit` rows of each list, or as many as before.
async function refreshBranch(item, limit) {
  const id = item.id;
  if (asking.has(id)) { again.set(id, limit || again.get(id)); return; }
  asking.add(id);
  const begun = performance.now();
  try {
    const query = new URLSearchParams({ i: item.dataset.i });
    const old = item.querySelector(":scope > details.branch");
    const rows = limit || old?.dataset.limit;
    if (rows) query.set("limit", rows);
    const answer = await ask(`${main.dataset.branch}?${query}`);
    const content = fragment(answer.html);
    dress(content);
    const fresh = content.firstElementChild;
    if (fresh) {
      if (old) morph(old, fresh); else item.append(fresh);
      if (limit) item.querySelector(":scope > details.branch").open = true;
      mark(chosen().action);
    }
  } catch (error) {
    say(`Some actions could not be shown: ${error.message}`);
  } finally {
    asking.delete(id);
    // At most twice a second, and a tenth of the time: while a fan-out starts, its actions come by the hundred.
    if (again.has(id)) {
      const wanted = again.get(id);
      again.delete(id);
      const wait = wanted ? 0 : Math.max(500, 10 * (performance.now() - begun));
      setTimeout(() => { const now = document.getElementById(id); if (now) refreshBranch(now, wanted); }, wait);
    }
  }
}

document.addEventListener("toggle", (event) => {
  const details = event.target;
  if (details.open && details.matches("details.branch") && details.querySelector(":scope > ul[data-lazy]")) {
    refreshBranch(details.parentElement);
  }
}, true);

function update(message) {
  const head = document.getElementById("head");
  const fresh = document.createElement("div");
  fresh.append(fragment(message.head));
  dress(fresh);
  morphChildren(head, fresh);
  document.title = message.title;
  const now = chosen().action;
  const stale = new Set();
  for (const [key, parent, html] of message.rows) {
    const row = document.getElementById(`r${key}`);
    if (row) {
      const content = fragment(html);
      dress(content);
      const link = row.querySelector("a[aria-current]");
      morph(row, content.firstElementChild);
      if (link) row.querySelector("a[data-choose]")?.setAttribute("aria-current", "true");
    } else if (parent) {
      const item = document.getElementById(`a${parent}`);
      if (item && !item.querySelector(":scope > details.branch")) stale.add(item);
    }
  }
  for (const [id, html, total] of message.sums) {
    const summary = document.getElementById(id);
    if (!summary) continue;
    const content = document.createElement("summary");
    content.append(fragment(html));
    morphChildren(summary, content);
    const branch = summary.parentElement;
    if (total && branch.dataset.total !== undefined && Number(branch.dataset.total) !== total) stale.add(branch.parentElement);
  }
  for (const item of stale) refreshBranch(item);
  if (message.rows.some(([key]) => `p${key}` === document.querySelector("#action .panel")?.id)) {
    showPanel(now, chosen().attempt);
  }
  tick();
}

// --- Streams: only while someone looks, since browsers allow few connections to one server

let runStream = null;
let logStream = null;
let lastSeen = "";

function followRun() {
  if (!main.dataset.live || runStream || document.hidden) return;
  const address = new URL(main.dataset.live, location.href);
  if (lastSeen) address.searchParams.set("after", lastSeen);
  runStream = new EventSource(address);
  runStream.addEventListener("open", () => say(""));
  runStream.addEventListener("update", (event) => {
    lastSeen = event.lastEventId;
    update(JSON.parse(event.data));
  });
  runStream.addEventListener("over", () => {
    delete main.dataset.live;
    leaveRun();
  });
  runStream.addEventListener("error", () => {
    say("Not connected: this page shows what was known last.");
    if (runStream?.readyState === EventSource.CLOSED) {
      leaveRun();
      setTimeout(followRun, 5000);
    }
  });
}

function leaveRun() {
  runStream?.close();
  runStream = null;
}

function followLog() {
  const log = document.querySelector("pre.log[data-stream]");
  if (logStream && logStream.log === log && log) return;
  leaveLog();
  if (!log || document.hidden) return;
  const source = new EventSource(log.dataset.stream);
  source.log = log;
  logStream = source;
  source.addEventListener("lines", (event) => {
    const { html, note, first } = JSON.parse(event.data);
    const atEnd = first || log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    if (first) log.replaceChildren();
    log.append(note || "", fragment(html));
    while (log.childElementCount > LOG_LINES) log.firstElementChild.remove();
    log.parentElement.querySelector(".gap")?.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
  });
  source.addEventListener("problem", (event) => {
    say(JSON.parse(event.data).text);
    leaveLog();
  });
  source.addEventListener("over", () => {
    log.removeAttribute("data-stream");
    leaveLog();
  });
}

function leaveLog() {
  logStream?.close();
  logStream = null;
}

async function poll() {
  if (document.hidden) return;
  try {
    const response = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
    if (!response.ok) throw new Error(response.statusText);
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("main");
    dress(fresh);
    morphChildren(main, fresh);
    say("");
  } catch {
    say("Not connected: this page shows what was known last.");
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    leaveRun();
    leaveLog();
  } else {
    followRun();
    followLog();
    if (main.dataset.poll) poll();
  }
});
addEventListener("pagehide", () => { leaveRun(); leaveLog(); });
addEventListener("pageshow", (event) => { if (event.persisted) { followRun(); followLog(); } });

dress(document);
tick();
setInterval(tick, 1000);
followRun();
followLog();
for (const log of document.querySelectorAll("pre.log")) log.scrollTop = log.scrollHeight;
if (main.dataset.poll) setInterval(poll, Number(main.dataset.poll) * 1000);
