// Opens each page in a frame as wide as a phone and in one as wide as a desk, and writes what it
// measures there as JSON into the element #found.
const found = {};
const pages = JSON.parse(document.querySelector("script").textContent);
let waiting = 0;

function light(colour) {
  const parts = colour.match(/[\d.]+/g).slice(0, 3).map((part) => part / 255);
  const [r, g, b] = parts.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(one, other) {
  const [more, less] = [light(one), light(other)].sort((a, b) => b - a);
  return (more + 0.05) / (less + 0.05);
}

function textsOf(svg) {
  return [...svg.querySelectorAll("text")].map((text) => [
    text.textContent,
    text.getBoundingClientRect(),
  ]);
}

function cross(a, b) {
  const isBeside = a.left >= b.right - 1 || b.left >= a.right - 1;
  return !isBeside && a.top < b.bottom - 3 && b.top < a.bottom - 3;
}

function look(frame) {
  const page = frame.contentDocument;
  const style = (each) => frame.contentWindow.getComputedStyle(each);
  const report = page.querySelector(".roquet-report");
  const drawings = [...page.querySelectorAll("figure > svg")];
  const overlaps = [];
  const outside = [];
  for (const svg of drawings) {
    const box = svg.getBoundingClientRect();
    const texts = textsOf(svg);
    texts.forEach(([word, at], number) => {
      if (at.left < box.left - 14 || at.right > box.right + 2 || at.bottom > box.bottom + 1)
        outside.push(word);
      for (const [other, place] of texts.slice(number + 1))
        if (cross(at, place)) overlaps.push([word, other]);
    });
  }
  const texts = [...page.querySelectorAll("figure > svg text")];
  return {
    spill: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    figures: page.querySelectorAll("figure").length,
    tables: page.querySelectorAll("table").length,
    flat: drawings.filter((svg) => svg.getBoundingClientRect().height < 20).length,
    textPx: Math.min(
      99,
      ...texts
        .filter((text) => !text.classList.contains("tick"))
        .map((text) => parseFloat(style(text).fontSize) * text.getScreenCTM().a),
    ),
    paper: style(report).backgroundColor,
    contrast: Math.min(
      contrast(style(report).color, style(report).backgroundColor),
      ...texts.map((text) =>
        contrast(style(text).fill, style(text.closest("figure")).backgroundColor),
      ),
    ),
    overlaps,
    outside,
  };
}

function finish() {
  const out = document.createElement("pre");
  out.id = "found";
  out.textContent = JSON.stringify(found);
  document.body.replaceChildren(out);
}

for (const [name, text] of Object.entries(pages)) {
  for (const width of [360, 1200]) {
    const frame = document.createElement("iframe");
    frame.style = `width:${width}px;height:800px;border:0`;
    waiting += 1;
    frame.onload = () => {
      try {
        found[`${name} ${width}`] = look(frame);
      } catch (error) {
        found[`${name} ${width}`] = { error: String(error) };
      }
      waiting -= 1;
      if (waiting === 0) finish();
    };
    frame.srcdoc = text;
    document.body.append(frame);
  }
}
