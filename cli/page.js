/* page.js: the page of braid explain --html: the tree, search, and details of a statement or a tensor. */
"use strict";
const { explain, profile } = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

/* ---- texts ---- */
/* A name of the model, safe to look at: control characters and those that turn the direction of writing are spelled
 * out. */
const unseen = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
const shown = (text) => String(text).replace(unseen, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
const brief = (text) => {
  const s = shown(text);
  return s.length <= 200 ? s : `${s.slice(0, 120)} … ${s.slice(-60)} (${s.length} characters)`;
};
const count = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
function bytesText(n) {
  if (n === null || n === undefined) return "known at run time";
  const unit = n < 1 << 10 ? 0 : n < 1 << 20 ? 1 : n < 1 << 30 ? 2 : 3;
  return unit ? `${+(n / 2 ** (10 * unit)).toPrecision(3)} ${["", "KiB", "MiB", "GiB"][unit]}` : `${n} B`;
}
function timeText(ns) {
  const [by, unit] = ns < 1e3 ? [1, "ns"] : ns < 1e6 ? [1e3, "µs"] : ns < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  return `${+(ns / by).toPrecision(3)} ${unit}`;
}

/* An element. Text is always text, never markup. */
function h(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {}))
    if (key === "onclick") e.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) e.setAttribute(key, value);
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}
const link = (text, f) => h("button", { class: "link", type: "button", onclick: f }, text);

/* Puts build(items[i]) for all i into `parent`, in elements `tag` for so many each, which are filled when they come
 * near the visible part of `scroller`. Returns a function that fills in item i at once. */
function lazily(scroller, parent, items, build, { tag = "div", each = 30, height = 40 } = {}) {
  const parts = [];
  const fill = (part) => {
    if (part.filled) return;
    part.filled = true;
    part.element.style.height = "";
    part.element.replaceChildren(...items.slice(part.from, part.from + each).map((x, k) => build(x, part.from + k)));
  };
  const near = items.length > each && new IntersectionObserver((seen) => {
    for (const s of seen) if (s.isIntersecting) fill(s.target.lazy), near.unobserve(s.target);
  }, { root: scroller, rootMargin: "1500px" });
  for (let from = 0; from < items.length; from += each) {
    const part = { from, element: h(tag), filled: false };
    part.element.lazy = part;
    parts.push(part);
    if (near) {
      const room = `${height * Math.min(each, items.length - from)}px`;
      part.element.style.height = room;
      if (tag === "tbody") part.element.append(h("tr", { style: `height:${room}` }));
      near.observe(part.element);
    } else fill(part);
  }
  parent.append(...parts.map((p) => p.element));
  return (i) => fill(parts[Math.floor(i / each)]);
}

/* ---- statements and tensors ---- */
const nodes = []; /* in the tree's order */
const byKey = new Map(); /* of a part of the profile */
const byPath = new Map();
const tensors = new Map((explain.placement || []).filter((t) => t.id !== undefined).map((t) => [t.id, t]));
const writers = new Map(), readers = new Map(); /* tensor id -> nodes */
const statements = []; /* number -> node */
const top_ = { children: explain.tree, parent: null, open: true, kind: "program", depth: 0 };
const push = (map, key, value) => map.has(key) ? map.get(key).push(value) : map.set(key, [value]);
/* Kinds whose name tells them from others of the same statement. */
const inside = new Set(["arm", "function", "barrier"]);
const partKey = (p) => `${p.statement}/${p.kind}/${inside.has(p.kind) ? p.name : ""}`;

(function index(parent) {
  parent.children.forEach((n, i) => {
    Object.assign(n, { id: nodes.length, parent, at: i, depth: parent.depth + 1, parts: [] });
    nodes.push(n);
    if (!byKey.has(partKey(n))) byKey.set(partKey(n), n);
    if (!statements[n.statement]) statements[n.statement] = n;
    if (n.path) push(byPath, n.path, n);
    for (const t of n.reads || []) push(readers, t, n);
    for (const t of n.writes || []) push(writers, t, n);
    if (n.children) index(n);
  });
})(top_);

const tensorName = (id) => {
  const t = tensors.get(id);
  return `t${id}` + (t && t.name ? ` "${brief(t.name)}"` : "");
};
const tensorType = (t) => t.type + (t.shape ? `[${t.shape.map((d) => d === null ? "?" : d).join(", ")}]` : "");
/* Where a tensor lives, in words. */
function place(t) {
  if (!t) return "";
  const of = t.of !== undefined ? `t${t.of}` : "another";
  const offsets = [t.offset, t.other_offset].filter((x) => x !== undefined);
  const at = offsets.length ? ` ${offsets.join(" and ")}` : "";
  const block = `memory of block ${t.block},${at}`;
  const where = {
    caller: "input", inline: "in the code", weights: `weights${at}`, "packed weights": `packed weights${at}`,
    arena: t.frame ? `frame of ${brief(t.frame)},${at}` : `arena${at}`, block,
    slot: `slot ${t.slot}`, fused: "nowhere: fused", view: `view of ${of}`,
    shared: `in place of ${of}`, carried: `carried, in ${of}`, "scan part": `part of ${of}`, parameter: "parameter",
    arms: "where the arm put it", result: "where the caller wants it", callee: "memory of the called", none: "nowhere",
  }[t.where] || t.where;
  return (t.outputs ? `output ${t.outputs.map(brief).join(", ")}, ` : "") + where + (t.resident ? ", resident" : "");
}

/* What a node is called. Of some kinds it is the first line of their text. */
const headed = new Set(["loop", "branch", "uniform", "check"]);
const title = (n) => {
  if (n.kind === "arm") return n.name;
  if (n.kind === "barrier") return barrierTitle(n);
  if (headed.has(n.kind) && n.text)
    return brief(n.text.split("\n").find((l) => !l.startsWith(" ")).replace(/^\w+ /, ""));
  return n.name ? brief(n.name) : (n.writes || []).map((t) => `t${t}`).join(", ");
};
const barrierTitle = (n) => ({
  statement: "units synchronize", iteration: "at the end of an iteration", begin: "carried values were copied in",
  grown: "a grown value is made dense", body: "inside of the hand-written body",
  apart: "after what some units did alone",
  gather: `unit ${n.unit} waits for all`, release: `all wait for unit ${n.unit}`,
}[n.name]);
const access = (writes) => (writes ? "written" : "read");
/* What a barrier separates, in words with links. */
function reason(n) {
  const w = n.why;
  const last = n.name === "statement" && n.parent === top_ && n.at === top_.children.length - 1;
  if (!w) return last ? ["the outputs are complete"] : [];
  const before = [tensorLink(w.before), ` is ${access(w.wrote)} before, `];
  if (w.after === w.before) return [...before, `and ${access(w.writes)} after`];
  return [...before, tensorLink(w.after), ` is ${access(w.writes)} after, in the same memory`];
}
function kernelText(n) {
  const k = n.kernel;
  if (!k || k.kind === "none") return null;
  return [k.kind, k.tile, k.shared_along === null ? null : `units share dimension ${k.shared_along} by ${k.grain}`]
    .filter(Boolean).join(", ");
}
const levelClass = { thread: "lane", block: "core", grid: "team" };
const levelTag = (n) => n.level && h("span", { class: `tag ${levelClass[n.level] || n.level}` },
  n.level + (n.unit !== undefined && n.kind !== "barrier" ? ` ${n.unit}` : ""));

/* ---- the profile ---- */
const partNode = new Map(); /* id of a part -> node */
if (profile)
  for (const part of profile.parts) {
    const n = part.statement === null ? null : byKey.get(partKey(part)) || statements[part.statement];
    partNode.set(part.id, n);
    if (n) n.parts.push(part);
  }
const sum = (list) => (list || []).reduce((a, b) => a + (b || 0), 0);
/* Time of a part: of the busiest unit the share of the run and the ns of a run, of the least busy one the share of the
 * busiest one's, and how many units ran it. */
function partTime(part) {
  const ran = (part.ns || []).filter((ns, u) => ns !== null && part.executions[u] > 0);
  if (!ran.length) return null;
  const most = Math.max(...ran), least = most ? Math.min(...ran) / most : 1;
  return { share: most / profile.run_ns, ns: most / profile.runs, least, units: ran.length };
}
const perRun = (n) => (n / profile.runs).toLocaleString("en", { maximumFractionDigits: 1 });
const meter = (share, least = 1) => h("span", { class: "meter", "aria-hidden": "true" },
  h("i", { class: "spread", style: `width:${Math.min(100, 100 * share)}%` }),
  h("i", { style: `width:${Math.min(100, 100 * share * least)}%` }));
const percent = (share) => `${+(100 * share).toPrecision(3)} %`;
/* A node's own part; where it stands for several places, their times together. */
function ownPart(n) {
  const own = n.parts.filter((p) => partKey(p) === partKey(n));
  if (own.length < 2 || !own[0].ns) return own[0];
  return { ...own[0], ns: own[0].ns.map((_, u) => sum(own.map((p) => p.ns && p.ns[u]))) };
}
function timeLine(n) {
  const part = ownPart(n);
  if (!part) return null;
  const t = partTime(part), said = [];
  if (t) said.push(percent(t.share), `${timeText(t.ns)} a run`);
  if (t && t.least < .95) said.push(`least busy unit ${percent(t.least)} of it`);
  if (t && t.units < profile.units) said.push(`${t.units} of ${profile.units} units`);
  const units = Math.max(1, part.executions.filter((e) => e).length);
  if (part.trips) said.push(`${perRun(sum(part.trips) / units)} iterations`);
  if (!t || part.kind === "arm") said.push(`${perRun(Math.max(...part.executions))} times`);
  if (part.deepest) said.push(`depth ${Math.max(...part.deepest)}`);
  return h("div", { class: "time" }, t && meter(t.share, t.least), h("span", {}, said.join(" · ")));
}

/* ---- the tree ---- */
const tree = $("tree");
let current = null, tensor = null; /* the node and the tensor that are looked at */
let found = [], foundSet = new Set(), foundAt = -1;

/* Opens constructs from the outside in while few rows are visible. */
(function openSome() {
  let rows = nodes.length ? top_.children.length : 0;
  for (let level = [...top_.children]; level.length; level = level.flatMap((n) => (n.open ? n.children : [])))
    for (const n of level)
      if (n.children && rows + n.children.length <= 400) (n.open = true), (rows += n.children.length);
})();

const chip = (id) => h("span", { class: id === tensor ? "chip now" : "chip", "data-t": id },
  tensorName(id), " ", h("span", { class: "muted" }, place(tensors.get(id))));
function usesLine(n) {
  const parts = [];
  if (n.reads && n.reads.length) parts.push("reads", ...n.reads.map(chip));
  if (n.writes && n.writes.length) parts.push("writes", ...n.writes.map(chip));
  if (n.registers && n.registers.length)
    parts.push("sets", ...n.registers.map((r) =>
      h("span", {}, h("span", { class: "mono" }, brief(r)), h("span", { class: "muted" }, " register"))));
  return parts.length ? h("div", { class: "uses" }, parts) : null;
}
/* What n does with the tensor that is looked at. */
const touches = (n) => ["writes", "reads"].find((how) => tensor !== null && (n[how] || []).includes(tensor));

function rowOf(n) {
  const kernel = kernelText(n), why = n.kind === "barrier" ? reason(n) : [];
  return h("div", { class: "row" },
    h("div", { class: "head" },
      h("span", { class: "twisty", "aria-hidden": "true" }, n.children ? (n.open ? "▾" : "▸") : ""),
      h("span", { class: "kind" }, n.kind === "barrier" && n.unit !== undefined ? "flag" : n.kind),
      h("span", { class: "muted" }, `#${n.statement}`),
      title(n) && h("span", { class: "name" }, title(n)),
      n.path && h("span", { class: "name muted" }, brief(n.path)),
      levelTag(n),
      n.each && h("span", { class: "tag" }, "every unit all of it"),
      n.beside && h("span", { class: "tag" }, "beside the one before"),
      kernel && h("span", { class: "muted" }, kernel),
      why.length > 0 && h("span", { class: "muted" }, why),
      touches(n) && h("span", { class: "tag touch" }, `${touches(n)} t${tensor}`)),
    usesLine(n), profile && timeLine(n));
}
function itemOf(n) {
  n.element = h("div", {
    role: "treeitem", "data-n": n.id, tabindex: n === current ? 0 : -1, "aria-level": n.depth,
    "aria-posinset": n.at + 1, "aria-setsize": n.parent.children.length,
    "aria-expanded": n.children ? String(!!n.open) : null, class: n.kind === "barrier" ? "barrier" : "",
    "aria-label": [n.kind, title(n), n.path && brief(n.path), n.level && `level ${n.level}`].filter(Boolean).join(", "),
  }, rowOf(n));
  mark(n);
  if (n.open) openGroup(n);
  return n.element;
}
function mark(n) {
  n.element.classList.toggle("found", foundSet.has(n));
  n.element.classList.toggle("now", n === current);
  n.element.setAttribute("aria-selected", String(n === current));
}
function openGroup(n) {
  n.group = h("div", { role: "group" });
  n.element.append(n.group);
  n.reveal = lazily(tree, n.group, n.children, itemOf);
}
function setOpen(n, open) {
  if (!n.children || !!n.open === open) return;
  n.open = open;
  if (!n.element) return;
  n.element.setAttribute("aria-expanded", String(open));
  n.element.querySelector(".twisty").textContent = open ? "▾" : "▸";
  if (open) return openGroup(n);
  n.group.remove();
  (function forget(m) {
    for (const k of m.children) if (k.element) (k.element = null), k.children && forget(k);
  })(n);
}
/* Makes the row of n, and opens what it is in. */
function reveal(n) {
  if (n.parent !== top_) reveal(n.parent), setOpen(n.parent, true);
  n.parent.reveal(n.at);
}
function refresh(n) {
  if (!n || !n.element) return;
  n.element.querySelector(".row").replaceWith(rowOf(n));
  mark(n);
}
function look(n, focus) {
  reveal(n);
  const before = current;
  current = n;
  if (before && before.element) (before.element.tabIndex = -1), mark(before);
  n.element.tabIndex = 0;
  mark(n);
  if (focus) n.element.focus({ preventScroll: true });
  n.element.querySelector(".row").scrollIntoView({ block: "nearest" });
  showNode(n);
}
function goTo(n) {
  select("tree");
  look(n, true);
}
function setAll(open) {
  for (const n of nodes) n.element = null;
  for (const n of nodes) if (n.children) n.open = open;
  tree.replaceChildren();
  top_.reveal = lazily(tree, tree, top_.children, itemOf);
  if (!current) return;
  let n = current;
  for (let p = n.parent; p !== top_; p = p.parent) if (!p.open) n = p;
  look(n, false);
}

/* The rows after and before n, as they are visible. */
function after(n) {
  if (n.open && n.children.length) return n.children[0];
  for (; n !== top_; n = n.parent) if (n.at + 1 < n.parent.children.length) return n.parent.children[n.at + 1];
  return null;
}
function lastIn(n) {
  while (n.open && n.children && n.children.length) n = n.children[n.children.length - 1];
  return n;
}
const before = (n) => n.at > 0 ? lastIn(n.parent.children[n.at - 1]) : n.parent === top_ ? null : n.parent;
function many(n, step, times) {
  for (let next; times-- > 0 && (next = step(n)); ) n = next;
  return n;
}

tree.addEventListener("keydown", (e) => {
  const n = current;
  if (!n || e.ctrlKey || e.metaKey || e.altKey || e.target.closest("button")) return;
  const to = {
    ArrowDown: () => after(n), ArrowUp: () => before(n), Home: () => top_.children[0], End: () => lastIn(top_),
    PageDown: () => many(n, after, 12), PageUp: () => many(n, before, 12),
    ArrowRight: () => (n.children && !n.open ? setOpen(n, true) : n.children && n.children[0]),
    ArrowLeft: () => (n.open ? setOpen(n, false) : n.parent !== top_ && n.parent),
    Enter: () => setOpen(n, !n.open), " ": () => setOpen(n, !n.open),
    "*": () => n.parent.children.forEach((k) => setOpen(k, true)),
  }[e.key];
  if (!to) return;
  e.preventDefault();
  const next = to();
  if (next) look(next, true);
});
tree.addEventListener("focusin", (e) => {
  const item = e.target.closest("[role=treeitem]");
  if (item && e.target === item && nodes[item.dataset.n] !== current) look(nodes[item.dataset.n], false);
});
tree.addEventListener("click", (e) => {
  const c = e.target.closest(".chip"), row = e.target.closest(".row");
  if (c) return showTensor(Number(c.dataset.t));
  if (!row || e.target.closest("button")) return;
  const n = nodes[row.parentElement.dataset.n];
  if (e.target.closest(".twisty")) setOpen(n, !n.open);
  look(n, true);
});
tree.addEventListener("dblclick", (e) => {
  const row = e.target.closest(".row"), n = row && nodes[row.parentElement.dataset.n];
  if (n && !e.target.closest(".chip, .twisty, button")) setOpen(n, !n.open);
});

/* ---- search ---- */
const haystack = (n) => n.words || (n.words = [
  n.kind, `#${n.statement}`, n.name, n.path, n.level, kernelText(n), n.text, ...(n.registers || []),
  ...[...(n.reads || []), ...(n.writes || [])].map((t) => `t${t} ${(tensors.get(t) || {}).name || ""}`)]
  .join("\n").toLowerCase());
function find(words) {
  const was = found;
  const w = words.trim().toLowerCase();
  found = w ? nodes.filter((n) => haystack(n).includes(w)) : [];
  foundSet = new Set(found);
  foundAt = -1;
  for (const n of [...was, ...found]) if (n.element) mark(n);
  if (found.length) step(1);
  else $("count").textContent = w ? "nothing found" : "";
}
function step(by) {
  if (!found.length) return;
  foundAt = (foundAt + by + found.length) % found.length;
  $("count").textContent = `${foundAt + 1} of ${found.length}`;
  look(found[foundAt], false);
}
let typing;
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => find($("search").value), 120);
});
$("search").addEventListener("keydown", (e) => {
  if (e.key === "Enter") step(e.shiftKey ? -1 : 1);
  else if (e.key === "ArrowDown" && current) look(current, true);
  else if (e.key === "Escape") ($("search").value = ""), find("");
  else return;
  e.preventDefault();
});
$("found-next").addEventListener("click", () => step(1));
$("found-before").addEventListener("click", () => step(-1));
$("open-all").addEventListener("click", () => setAll(true));
$("close-all").addEventListener("click", () => setAll(false));
$("show-uses").addEventListener("change", () => tree.classList.toggle("no-uses", !$("show-uses").checked));

/* ---- details ---- */
const tensorLink = (id) => link(tensorName(id), () => showTensor(id));
const nodeLink = (n) => link([`${n.kind} #${n.statement}`, title(n)].filter(Boolean).join(" "), () => goTo(n));
const pairs = (list) => h("dl", {}, list.filter(([, v]) => v !== null && v !== undefined && v !== "")
  .flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]));
/* Puts commas between elements. */
const commas = (list) => list.flatMap((x, i) => (i ? [", ", x] : [x]));
/* A statement's text, its tensors as links. */
function linked(n) {
  const known = new Set([...(n.reads || []), ...(n.writes || [])]);
  return shown(n.text.replaceAll("\n", "\u0085")).replaceAll("\\u0085", "\n").split(/\b(t\d+)\b/).map((s, i) =>
    i % 2 && known.has(Number(s.slice(1))) ? link(s, () => showTensor(Number(s.slice(1)))) : s);
}
function tensorTable(what, ids) {
  if (!ids || !ids.length) return null;
  return [h("h3", {}, what), h("table", {}, h("tbody", {}, ids.map((id) => {
    const t = tensors.get(id);
    return h("tr", {}, h("td", {}, tensorLink(id)), h("td", {}, t ? tensorType(t) : ""), h("td", {}, place(t)));
  })))];
}
function profileTable(n) {
  return n.parts.map((p) => {
    const t = partTime(p), waits = [];
    (function add(m) {
      for (const k of m.children || []) {
        for (const q of k.parts) if (q.kind === "barrier" && q.ns) waits.push(sum(q.ns));
        add(k);
      }
    })(n);
    const times = p.ns && p.ns.map((x) => (x === null ? "–" : timeText(x)));
    const columns = [["Executions", p.executions], ["Time", times], ["Iterations", p.trips]].filter(([, list]) => list);
    return [h("h3", {}, `Measured: ${p.kind}${inside.has(p.kind) ? ` "${p.name}"` : ""}`),
      pairs([["time", t && `${percent(t.share)}, ${timeText(t.ns)} a run`],
        ["waits inside", waits.length && t ? `${timeText(sum(waits) / profile.units / profile.runs)} a run` : null],
        ["timed", ["never, only counted", "every execution"][p.every] || `one execution in ${p.every}`],
        ["iterations", p.trips_min && `${Math.min(...p.trips_min)} to ${Math.max(...p.trips_max)} in one execution`],
        ["deepest", p.deepest && Math.max(...p.deepest)]]),
      h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Unit"), columns.map(([k]) => h("th", { class: "n" }, k)))),
        h("tbody", {}, p.executions.map((_, u) =>
          h("tr", {}, h("td", {}, u), columns.map(([, list]) => h("td", { class: "n" }, list[u]))))))];
  });
}
function showNode(n) {
  const choices = n.path ? decisions.filter((d) => d.path === n.path) : [];
  const ways = [];
  for (let p = n.parent; p !== top_; p = p.parent) ways.unshift(nodeLink(p));
  const kernel = n.kernel;
  $("details").replaceChildren(...[
    ways.length ? h("div", { class: "path" }, "in ", commas(ways)) : null,
    h("h2", {}, [`${n.kind} #${n.statement}`, title(n)].filter(Boolean).join(": ")),
    n.path && h("p", { class: "muted" }, shown(n.path)),
    n.kind === "barrier" && reason(n).length ? h("p", {}, reason(n)) : null,
    n.kind === "barrier" && separated(n),
    pairs([["level", levelTag(n)], ["unit", n.unit], ["kernel", kernel && kernel.kind], ["tile", kernel && kernel.tile],
      ["shared", kernel && (kernel.shared_along === null ? "one unit computes all"
        : `dimension ${kernel.shared_along}, by ${kernel.grain}`)],
      ["scratch", kernel && kernel.scratch_bytes ? bytesText(kernel.scratch_bytes) : null],
      ["frame", n.frame_bytes ? bytesText(n.frame_bytes) : null],
      ["registers", n.registers && n.registers.length ? n.registers.map(shown).join(", ") : null]]),
    n.text && h("pre", {}, linked(n)),
    tensorTable("Reads", n.reads), tensorTable("Writes", n.writes),
    choices.length ? [h("h3", {}, "Choices"), choices.map((d) => [h("p", {}, choiceTitle(d)), waysOf(d)])] : null,
    profile && profileTable(n),
  ].flat(9).filter(Boolean));
  $("details").scrollTop = 0;
}
/* The statements before and after a barrier. */
function separated(n) {
  const all = n.parent.children, one = all[n.at - 1], other = all[n.at + 1];
  return pairs([["after", one && nodeLink(one)],
    ["before", other ? nodeLink(other) : n.name === "iteration" ? "the next iteration" : null]]);
}
function showTensor(id) {
  const was = tensor, t = tensors.get(id);
  tensor = id;
  for (const x of [was, id])
    for (const n of [...(writers.get(x) || []), ...(readers.get(x) || [])]) refresh(n);
  const same = [...tensors.values()].filter((x) => x !== t && (x.of === id || x.id === (t && t.of)));
  const users = (map) => (map.has(id) ? commas(map.get(id).slice(0, 200).map(nodeLink)) : "nothing");
  $("details").replaceChildren(...[
    h("h2", {}, `Tensor t${id}` + (t && t.name ? `: ${brief(t.name)}` : "")),
    t && t.path && h("p", { class: "muted" }, shown(t.path)),
    pairs([["type", t && tensorType(t)], ["size", t && bytesText(t.bytes)], ["where", place(t)],
      ["alive", t && t.first !== undefined ? `statements #${t.first} to #${t.last}` : null],
      ["computed by", t && t.level && `units of level ${t.level}`], ["loop", t && t.loop && brief(t.loop)],
      ["written by", users(writers)], ["read by", users(readers)],
      ["same memory", same.length ? commas(same.map((x) => tensorLink(x.id))) : null]]),
    t && h("p", {}, h("button", { type: "button", onclick: () => select("memory") }, "Show in the memory map")),
    h("p", {}, h("button", { type: "button", onclick: () => unselectTensor() }, "Clear")),
  ].filter(Boolean));
  showInMemory();
}
function unselectTensor() {
  const was = tensor;
  tensor = null;
  for (const n of [...(writers.get(was) || []), ...(readers.get(was) || [])]) refresh(n);
  showInMemory();
  if (current) showNode(current);
}
