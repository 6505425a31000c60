/* What tests/explain_page.py asks of a page, in the page. */

/* The part of rectangle a that is in b. */
function clipped(a, b) {
  return { left: Math.max(a.left, b.left), top: Math.max(a.top, b.top), right: Math.min(a.right, b.right),
    bottom: Math.min(a.bottom, b.bottom) };
}

/* Rectangles of all text that is visible: a text node's lines, cut to what its scrollers show. */
function textBoxes() {
  const boxes = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let t; (t = walker.nextNode()); ) {
    const e = t.parentElement, range = document.createRange();
    if (!t.data.trim() || e.closest("script, style, [hidden], option") || !e.checkVisibility()) continue;
    let view = { left: 0, top: 0, right: innerWidth, bottom: innerHeight };
    for (let p = e; p; p = p.parentElement) if (p.matches(".scroll, aside")) view = clipped(view, p.getBoundingClientRect());
    range.selectNodeContents(t);
    for (const whole of range.getClientRects()) {
      const box = { ...clipped(whole, view), e, text: t.data.trim().slice(0, 40), whole };
      if (box.right - box.left > 1 && box.bottom - box.top > 1) boxes.push(box);
    }
  }
  return boxes;
}

function rgb(color) {
  return color.match(/[\d.]+/g).map(Number);
}
function lightness(color) {
  const part = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = rgb(color).slice(0, 3).map(part);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
/* Between an element's text and what is behind it, as WCAG has it. */
function contrast(e) {
  let p = e, back;
  do back = getComputedStyle(p).backgroundColor;
  while (rgb(back)[3] === 0 && (p = p.parentElement));
  const [a, b] = [lightness(getComputedStyle(e).color), lightness(back)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}

function faultsOfLayout() {
  const boxes = textBoxes(), faults = [];
  for (let i = 0; i < boxes.length; i++)
    for (let k = 0; k < i; k++) {
      /* Boxes of lines of text may overlap by a bit; their letters do not. */
      const a = boxes[i], b = boxes[k], both = clipped(a, b), wide = both.right - both.left, tall = both.bottom - both.top;
      if (wide > 1 && tall > 3) faults.push(`'${a.text}' overlaps '${b.text}' by ${wide} x ${tall}`);
    }
  for (const b of boxes)
    if (b.whole.right > innerWidth + 1 || b.whole.left < -1) faults.push(`'${b.text}' is outside of the window`);
  for (const e of document.querySelectorAll("body *")) {
    if (!e.checkVisibility() || e.closest("script, style") || e.matches("input, select, .meter")) continue;
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== "visible")
      faults.push(`${e.tagName} #${e.id} .${e.className} is cut: ${e.scrollWidth} > ${e.clientWidth}`);
  }
  if (document.documentElement.scrollHeight > innerHeight + 1) faults.push("the page is higher than the window");
  const [least, where] = boxes.map((b) => [contrast(b.e), b.text]).sort((a, b) => a[0] - b[0])[0] || [0, "nothing"];
  if (least < 4.5) faults.push(`contrast of '${where}' is ${least.toFixed(2)}`);
  if (boxes.length < 10) faults.push("there is hardly any text");
  return faults.slice(0, 5);
}

/* The focused element, or the row of a focused tree item, has an outline. */
function focusIsSeen() {
  const e = document.activeElement, s = getComputedStyle(e.matches("[role=treeitem]") ? e.querySelector(".row") : e);
  return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1;
}
