/* page_views.js: the page's other views: choices, memory, timeline, summary; and its start. */
/* ---- choices ---- */
const decisions = (explain.schedule || { decisions: [] }).decisions;
function choiceTitle(d) {
  const name = d.transformation || d.parameter;
  return d.transformation ? `${name}: ${d.taken ? "chosen" : "rejected"}` : `${name} ${d.value}`;
}
/* Candidates with their times; what was measured takes the estimate's place. */
function waysOf(d) {
  const m = d.measured;
  const time = (w) => (!m ? w.ns : w.value === d.value ? m.ns : w.value === m.other ? m.other_ns : 0);
  const most = Math.max(...d.ways.map(time));
  return h("div", {}, d.ways.map((w) => h("div", { class: w.value === d.value ? "way taken" : "way" },
    h("span", {}, w.value), meter(most ? time(w) / most : 0),
    h("span", {}, (time(w) ? timeText(time(w)) : "no estimate") + (w.value === d.value ? ", chosen" : "")))));
}
function choiceRow(d) {
  const of = (byPath.get(d.path) || [])[0];
  const words = d.path ? brief(d.path) : "the whole program";
  return h("tr", {}, h("td", {}, choiceTitle(d)), h("td", {}, of ? link(words, () => goTo(of)) : words),
    h("td", {}, waysOf(d)), h("td", {}, d.by === "model" ? "cost model" : d.by === "force" ? "forced" : "measurement"));
}
function showChoices() {
  const w = $("choices-search").value.trim().toLowerCase(), table = $("choices");
  const some = decisions.filter((d) => `${choiceTitle(d)}\n${d.path}\n${d.by}`.toLowerCase().includes(w));
  for (const old of table.querySelectorAll("tbody")) old.remove();
  lazily(table.parentElement, table, some, choiceRow, { tag: "tbody", height: 60 });
  $("choices-count").textContent = count(some.length, "choice");
}
$("choices-search").addEventListener("input", showChoices);

/* ---- canvases ---- */
const paint = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
/* Prepares a canvas of so many CSS pixels; returns its context and width. */
function begin(canvas, height) {
  const width = canvas.clientWidth, scale = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const g = canvas.getContext("2d");
  g.scale(scale, scale);
  g.font = "12px system-ui, sans-serif";
  g.textBaseline = "middle";
  g.clearRect(0, 0, width, height);
  return { g, width };
}
/* The first of some texts for which there is room in a box. */
function label(g, texts, x, y, width) {
  const text = width > 14 && texts.find((s) => g.measureText(s).width <= width - 6);
  if (text) g.fillText(text, x + 3, y);
}

/* The outline of a rectangle, inside of it. */
function frame(g, colour, width, x, y, w, h) {
  g.strokeStyle = colour;
  g.lineWidth = width;
  g.strokeRect(x + width / 2, y + width / 2, Math.max(1, w - width), Math.max(1, h - width));
}

/* ---- memory ---- */
const regionOf = (t) => t.where !== "arena" && t.where !== "block" || t.offset === undefined ? null
  : t.block !== undefined ? `block ${t.block}` : t.frame ? `frame of ${t.frame}` : "arena";
const regions = new Map(); /* name -> rectangles */
for (const t of tensors.values()) {
  const region = regionOf(t);
  if (!region || t.first === undefined) continue;
  for (const at of [t.offset, t.other_offset])
    if (at !== undefined) push(regions, region, { t, x: t.first, right: t.last + 1, y: at, bottom: at + t.bytes });
}
const kinds = ["caller", "arena", "block", "arena top", "slot", "carried", "scan part", "shared", "view", "parameter",
  "arms", "result", "callee", "weights", "packed weights", "inline"];
const memoryRows = (explain.placement || []).slice().sort((a, b) => kinds.indexOf(a.where) - kinds.indexOf(b.where) ||
  (a.offset || 0) - (b.offset || 0) || (a.id || 0) - (b.id || 0));
const memoryAt = new Map(memoryRows.map((t, i) => [t.id, i]));
let revealMemory = null, memoryElements = new Map(), mapView = null;
function memoryRow(t) {
  const row = h("tr", { class: t.id !== undefined && t.id === tensor ? "now" : null },
    h("td", {}, t.id === undefined ? brief(t.name) : tensorLink(t.id)), h("td", {}, tensorType(t)),
    h("td", { class: "n" }, t.bytes === null ? "at run time" : t.bytes.toLocaleString("en")), h("td", {}, place(t)),
    h("td", {}, t.first === undefined ? "" : `#${t.first} to #${t.last}`));
  memoryElements.set(t.id, row);
  return row;
}
function drawMap() {
  if ($("panel-memory").hidden) return;
  const all = regions.get($("region").value) || [], height = 300, left = 70, foot = 20;
  const { g, width } = begin($("map"), height);
  const bytes = Math.max(1, ...all.map((r) => r.bottom)), last = Math.max(1, statements.length);
  const x = (s) => left + ((width - left - 8) * s) / last, y = (b) => 8 + ((height - foot - 16) * b) / bytes;
  const fg = paint("--fg"), muted = paint("--muted"), line = paint("--line");
  mapView = { all, x, y };
  const size = `${count(all.length, "rectangle")}, ${bytesText(bytes)}`;
  $("map").setAttribute("aria-label", `Memory map: ${size}; arrows go from tensor to tensor`);
  g.textAlign = "end";
  for (let k = 0; k <= 4; k++) {
    g.fillStyle = muted;
    g.fillText(bytesText(Math.round((bytes * k) / 4)), left - 6, y((bytes * k) / 4));
    g.fillStyle = line;
    g.fillRect(left, y((bytes * k) / 4), width - left - 8, 1);
  }
  g.textAlign = "start";
  all.forEach((r) => {
    const w = Math.max(1, x(r.right) - x(r.x)), tall = Math.max(1, y(r.bottom) - y(r.y));
    g.fillStyle = paint(`--c${r.t.id % 6}`);
    g.fillRect(x(r.x), y(r.y), w, tall);
    if (w > 3 && tall > 3) frame(g, muted, 1, x(r.x), y(r.y), w, tall);
    g.fillStyle = fg;
    if (tall >= 13) label(g, [tensorName(r.t.id), `t${r.t.id}`], x(r.x), y(r.y) + tall / 2, w);
  });
  for (const r of all)
    if (r.t.id === tensor) frame(g, fg, 3, x(r.x), y(r.y), x(r.right) - x(r.x), y(r.bottom) - y(r.y));
  g.fillStyle = muted;
  const by = Math.max(1, Math.ceil(last / 8));
  for (let s = 0; s < last; s += by) g.fillText(`#${s}`, x(s), height - foot / 2);
}
function showInMemory() {
  for (const [id, row] of memoryElements) row.classList.toggle("now", id !== undefined && id === tensor);
  const t = tensors.get(tensor);
  const region = t && (regionOf(t) || (t.of !== undefined && tensors.get(t.of) && regionOf(tensors.get(t.of))));
  if (region && regions.has(region)) $("region").value = region;
  $("memory-status").textContent = t ? `${tensorName(t.id)}: ${place(t)}` : "";
  if ($("panel-memory").hidden) return;
  drawMap();
  if (!t || !memoryAt.has(t.id)) return;
  revealMemory(memoryAt.get(t.id));
  const row = memoryElements.get(t.id), box = row.getBoundingClientRect();
  const view = $("memory-scroll").getBoundingClientRect();
  if (box.top < view.top || box.bottom > view.bottom) row.scrollIntoView({ block: "center" });
}
$("map").addEventListener("click", (e) => {
  const { all, x, y } = mapView, within = (v, from, to) => v >= from && v <= Math.max(to, from + 3);
  const at = all.filter((r) => within(e.offsetX, x(r.x), x(r.right)) && within(e.offsetY, y(r.y), y(r.bottom)));
  if (at.length) showTensor(at[at.length - 1].t.id);
});
$("map").addEventListener("keydown", (e) => {
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
  if (!by || !mapView.all.length) return;
  e.preventDefault();
  const across = (a, b) => a.x - b.x || a.y - b.y, down = (a, b) => a.y - b.y || a.x - b.x;
  const order = mapView.all.slice().sort(/Right|Left/.test(e.key) ? across : down).map((r) => r.t.id);
  const at = order.indexOf(tensor);
  showTensor(order[(at < 0 ? (by > 0 ? 0 : order.length - 1) : at + by + order.length) % order.length]);
});
$("region").addEventListener("change", drawMap);
function showMemory() {
  if (!revealMemory) {
    $("region").append(...[...regions.keys()].map((r) => h("option", { value: r }, brief(r))));
    if (!regions.size) $("region").append(h("option", { value: "" }, "nothing with a fixed place"));
    revealMemory = lazily($("memory-scroll"), $("memory"), memoryRows, memoryRow, { tag: "tbody", height: 27 });
  }
  showInMemory();
  drawMap();
}

/* ---- timeline ---- */
const line_ = profile && profile.timeline ? (function () {
  const rows = Array.from({ length: profile.units }, () => ({ events: [], depth: 1 }));
  let end = 1;
  for (const [unit, part, from, to, number] of profile.timeline.events) {
    const row = rows[unit], stack = row.stack || (row.stack = []);
    while (stack.length && stack[stack.length - 1].to <= from) stack.pop();
    const event = { unit, part, from, to, number, depth: stack.length };
    stack.push(event);
    row.depth = Math.max(row.depth, stack.length);
    row.events.push(event);
    end = Math.max(end, to);
  }
  return { rows, end, from: 0, to: end, unit: 0, event: null, dropped: sum(profile.timeline.dropped) };
})() : null;
const partById = new Map((profile ? profile.parts : []).map((p) => [p.id, p]));
const colours = { loop: "--c0", branch: "--c2", arm: "--c2", call: "--c4", function: "--c4", activation: "--c4",
  group: "--c1", body: "--c5", product: "--c5", barrier: "--wait", program: "--c0" };
/* What a part is called, from long to short. */
const partNames = (id) => {
  const p = partById.get(id) || { kind: "?" }, name = p.name && brief(p.name), path = p.path && brief(p.path);
  return [[p.kind, name, path], [p.kind, name || path], [name || path], [p.kind]]
    .map((s) => s.filter(Boolean).join(" ")).filter(Boolean);
};
/* A canvas cannot be higher than some 16,000 pixels. */
const SIDE = 56, AXIS = 22, GAP = 10;
const lanes = line_ ? sum(line_.rows.map((r) => r.depth)) : 1;
const LANE = line_ ? Math.max(3, Math.min(17, Math.floor((15000 - GAP * line_.rows.length) / lanes))) : 0;
function lineY(unit) {
  let y = AXIS;
  for (let u = 0; u < unit; u++) y += line_.rows[u].depth * LANE + GAP;
  return y;
}
function drawTimeline() {
  if (!line_ || $("panel-timeline").hidden) return;
  const { g, width } = begin($("timeline"), lineY(line_.rows.length));
  const span = line_.to - line_.from, wide = width - SIDE - 6, x = (t) => SIDE + ((t - line_.from) / span) * wide;
  const fg = paint("--fg"), muted = paint("--muted"), fill = {};
  for (const kind in colours) fill[kind] = paint(colours[kind]);
  line_.x = x;
  line_.wide = wide;
  g.fillStyle = muted;
  const unit = 10 ** Math.floor(Math.log10(span / 4)), tick = unit * [1, 2, 5, 10].find((k) => span / (unit * k) <= 6);
  for (let t = Math.ceil(line_.from / tick) * tick; t <= line_.to; t += tick)
    if (x(t) + 60 < width) g.fillText(timeText(t), x(t) + 3, 10), g.fillRect(x(t), 4, 1, 14);
  line_.rows.forEach((row, u) => {
    const y = lineY(u), past = [];
    g.fillStyle = fg;
    g.fillText(`unit ${u}`, 4, y + LANE / 2);
    if (u === line_.unit) g.fillRect(0, y, 2, row.depth * LANE);
    for (const e of row.events) {
      if (e.from > line_.to) break;
      if (e.to < line_.from) continue;
      const left = Math.max(SIDE, x(e.from)), right = Math.min(SIDE + wide, Math.max(x(e.to), x(e.from) + 1));
      if (right <= (past[e.depth] || 0)) continue; /* in a pixel that is drawn already */
      past[e.depth] = Math.ceil(right * 2) / 2;
      const kind = (partById.get(e.part) || {}).kind, top = y + e.depth * LANE, w = Math.max(1, right - left);
      g.fillStyle = fill[kind] || fill.group;
      g.fillRect(left, top, w, LANE - 2);
      if (w > 3) frame(g, muted, .5, left, top, w, LANE - 2);
      g.fillStyle = fg;
      if (LANE > 12) label(g, partNames(e.part), left, top + LANE / 2 - 1, w);
      if (e === line_.event) frame(g, fg, 2, left, top, w, LANE - 2);
    }
  });
}
function setSpan(from, to) {
  const span = Math.min(Math.max(to - from, line_.end * 1e-7, 1), line_.end * 1.02);
  line_.from = Math.max(-.01 * line_.end, Math.min(from, line_.end * 1.01 - span));
  line_.to = line_.from + span;
  drawTimeline();
}
function zoom(by, at = (line_.from + line_.to) / 2) {
  setSpan(at - (at - line_.from) * by, at + (line_.to - at) * by);
}
const pan = (by) => setSpan(line_.from + by * (line_.to - line_.from), line_.to + by * (line_.to - line_.from));
function showEvent(e) {
  line_.event = e;
  line_.unit = e.unit;
  const times = `${timeText(e.to - e.from)} from ${timeText(e.from)}`, half = (line_.to - line_.from) / 2;
  $("timeline-status").textContent = `unit ${e.unit}: ${partNames(e.part)[0]}, ${times}`;
  if (e.to < line_.from || e.from > line_.to) setSpan(e.from - half, e.from + half);
  else drawTimeline();
  const n = partNode.get(e.part);
  if (n) showNode(n);
}
function stepEvent(by) {
  const list = line_.rows[line_.unit].events;
  if (!list.length) return;
  const known = line_.event && line_.event.unit === line_.unit;
  const at = known ? list.indexOf(line_.event) + by : list.findIndex((e) => e.from >= line_.from);
  showEvent(list[Math.max(0, Math.min(list.length - 1, at))]);
}
function stepUnit(by) {
  line_.unit = Math.max(0, Math.min(line_.rows.length - 1, line_.unit + by));
  $("timeline-status").textContent = `unit ${line_.unit}`;
  drawTimeline();
}
if (line_) {
  const canvas = $("timeline");
  const keys = {
    "+": () => zoom(.5), "=": () => zoom(.5), "-": () => zoom(2), "0": () => setSpan(0, line_.end),
    ArrowLeft: () => pan(-.2), ArrowRight: () => pan(.2), ArrowUp: () => stepUnit(-1), ArrowDown: () => stepUnit(1),
    n: () => stepEvent(1), p: () => stepEvent(-1),
    Home: () => setSpan(0, line_.to - line_.from), End: () => setSpan(line_.end - (line_.to - line_.from), line_.end),
    Enter: () => line_.event && partNode.get(line_.event.part) && goTo(partNode.get(line_.event.part)),
  };
  canvas.addEventListener("keydown", (e) => {
    if (!keys[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    keys[e.key]();
  });
  const timeAt = (e) => line_.from + ((e.offsetX - SIDE) / line_.wide) * (line_.to - line_.from);
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) pan((e.deltaX || e.deltaY) / 1000);
    else zoom(2 ** (e.deltaY / 300), timeAt(e));
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (e) => {
    held = { x: e.offsetX, from: line_.from, to: line_.to, moved: false };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    if (!held) return;
    held.moved = held.moved || Math.abs(e.offsetX - held.x) > 3;
    const by = ((held.x - e.offsetX) / line_.wide) * (held.to - held.from);
    if (held.moved) setSpan(held.from + by, held.to + by);
  });
  canvas.addEventListener("pointerup", (e) => {
    const click = held && !held.moved, t = timeAt(e);
    held = null;
    if (!click) return;
    line_.rows.forEach((row, u) => {
      const depth = Math.floor((e.offsetY - lineY(u)) / LANE), slack = (2 * (line_.to - line_.from)) / line_.wide;
      const hit = row.events.find((v) => v.depth === depth && v.from - slack <= t && t <= v.to + slack);
      if (hit) showEvent(hit);
    });
  });
  const buttons = { "zoom-in": "+", "zoom-out": "-", "zoom-all": "0", "event-next": "n", "event-before": "p" };
  for (const id in buttons) $(id).addEventListener("click", keys[buttons[id]]);
  const used = new Set(profile.timeline.events.map((e) => (partById.get(e[1]) || {}).kind));
  $("legend").append(...[...used].filter((k) => colours[k]).flatMap((k) =>
    [h("span", { class: "key", style: `background:var(${colours[k]})` }),
      ` ${k === "barrier" ? "barrier (waiting)" : k} `]));
  if (line_.dropped) $("legend").append(` ${count(line_.dropped, "older event")} did not fit and are left out.`);
}

/* ---- summary ---- */
function tableOf(head, rows) {
  const line = (tag, cells) => h("tr", {}, cells.map((x) => h(tag, {}, x)));
  return h("table", {}, h("thead", {}, line("th", head)), h("tbody", {}, rows.map((r) => line("td", r))));
}
const section = (name, ...rest) => [h("h3", {}, name), ...rest];
const some = (n, text = String) => (n ? text(n) : null);
const listOf = (list) => h("ul", {}, list.map((x) => h("li", {}, `${brief(x.name)}: ${shown(x.type)}`)));
/* What was planned for a device; the interpreter has none. */
function planned(e) {
  const loop = (l) => [l.path ? brief(l.path) : "", l.barriers + l.cluster_barriers + l.flags, bytesText(l.constants),
    bytesText(l.constants_of_core), l.resident ? "yes" : "no"];
  const level = (l) => [l.name, some(l.bytes, bytesText), some(l.read_gbps, (x) => `${x} GB/s`),
    some(l.barrier_ns, timeText)].map((x) => x || "");
  return [
    section("Memory", pairs([["arena", `${bytesText(e.arena_bytes)}, ${bytesText(e.live_bytes)} alive at once`],
      ["growable slots", e.slots], ["weights", bytesText(e.weights_bytes)],
      ["block's own memory", some(e.shared_bytes, bytesText)],
      ["in blocks of a cluster", some(e.distributed_bytes, bytesText)], ["fused tensors", e.fused]])),
    section("Synchronization", pairs([["barriers in the text", e.barriers], ["of a cluster", some(e.cluster_barriers)],
      ["flags", some(e.flags)], ["launches", some(e.launches)], ["library products", some(e.products)]])),
    e.loops.length && section("Loops",
      tableOf(["Loop", "Barriers an iteration", "Constants", "Of a core", "Resident"], e.loops.map(loop))),
    e.recursive.length && section("Recursive functions", tableOf(["Function", "Barriers a call", "Frame"],
      e.recursive.map((f) => [brief(f.name), f.barriers + f.flags, bytesText(f.frame_bytes)]))),
    e.residents.length && section("Constants on chip", tableOf(["Constant", "Bytes of a block", "Kept"],
      e.residents.map((r) => [brief(r.name), bytesText(r.bytes), r.kept ? "on chip" : "streamed"]))),
    section(`Device ${e.device.name}, costs ${e.device.measured ? "measured" : "published"}`,
      tableOf(["Level", "Near it", "Read", "Barrier"], e.device.levels.map(level))),
  ];
}
function showSummary() {
  const counts = Object.entries(explain.statements).filter(([, n]) => n);
  $("summary").replaceChildren(...[
    section("Inputs", listOf(explain.inputs)), section("Outputs", listOf(explain.outputs)),
    explain.state.length ? section("State", pairs(explain.state.map((s) =>
      [brief(s.input), `output ${brief(s.output)} of the run before`]))) : [],
    section("Statements", pairs(counts)), explain.device ? planned(explain) : [],
    profile && section("Profile", pairs([["runs", profile.runs], ["units", profile.units],
      ["a run", timeText(profile.run_ns / profile.runs)], ["clock", profile.clock]])),
  ].flat(3).filter(Boolean));
}

/* ---- tabs and the page ---- */
const views = [["tree", "Tree", () => {}], ["choices", "Choices", () => {}], ["memory", "Memory", showMemory],
  ["timeline", "Timeline", drawTimeline], ["summary", "Summary", () => {}]]
  .filter(([id]) => id !== "timeline" || line_);
function select(id, focus) {
  for (const [v] of views) {
    const on = v === id, tab = $(`tab-${v}`);
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
    $(`panel-${v}`).hidden = !on;
    if (on && focus) tab.focus();
  }
  views.find(([v]) => v === id)[2]();
}
$("tabs").append(...views.map(([id, name]) => h("button", {
  role: "tab", id: `tab-${id}`, type: "button", "aria-controls": `panel-${id}`, onclick: () => select(id),
}, name)));
$("tabs").addEventListener("keydown", (e) => {
  const at = views.findIndex(([id]) => $(`tab-${id}`) === document.activeElement);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: views.length - 1 }[e.key];
  if (to === undefined || at < 0) return;
  e.preventDefault();
  select(views[(to + views.length) % views.length][0], true);
});
document.addEventListener("keydown", (e) => {
  if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, select")) return;
  e.preventDefault();
  select("tree");
  $("search").focus();
  $("search").select();
});
const redraw = () => (drawMap(), drawTimeline());
window.addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

/* Parts of the address behind #, with commas between: a view, a statement s7, a tensor t3. */
function follow() {
  for (const word of location.hash.slice(1).split(",")) {
    if (views.some(([id]) => id === word)) select(word);
    else if (/^s\d+$/.test(word) && statements[+word.slice(1)]) look(statements[+word.slice(1)], false);
    else if (/^t\d+$/.test(word) && tensors.has(+word.slice(1))) showTensor(+word.slice(1));
  }
}
window.addEventListener("hashchange", follow);

document.title = `${brief(explain.model)}: braid explain`;
$("title").textContent = brief(explain.model);
$("facts").textContent = [
  explain.device && explain.device.name, explain.schedule && count(explain.schedule.units, "unit"),
  count(statements.length, "statement"), explain.barriers !== undefined && count(explain.barriers, "barrier"),
  explain.arena_bytes !== undefined && `arena ${bytesText(explain.arena_bytes)}`,
  explain.weights_bytes !== undefined && `weights ${bytesText(explain.weights_bytes)}`,
  explain.schedule && `estimate ${timeText(explain.schedule.estimate_ns)} a run`,
  profile && `measured ${timeText(profile.run_ns / profile.runs)} a run`].filter(Boolean).join(" · ");
top_.reveal = lazily(tree, tree, top_.children, itemOf);
showChoices();
showSummary();
select("tree");
if (nodes.length) look(nodes[0], false);
follow();
