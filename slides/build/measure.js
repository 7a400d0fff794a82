// Measure the current slide. Returns a message for each text that cannot be read in the last row.
async () => {
  const WIDTH = 1280, TEXT = 32, LABEL = 21.3, CONTRAST = 4.5; // pixels: 24 pt, 16 pt, and a contrast ratio
  const slide = Reveal.getCurrentSlide().querySelector(".slide"), found = new Set();
  const frame = slide.getBoundingClientRect(), scale = frame.width / WIDTH;
  const source = slide.querySelector(".source");
  const floor = source?.checkVisibility() ? source.getBoundingClientRect().top : frame.bottom - 36 * scale;
  const up = (node) => node.parentElement ?? node.getRootNode().host;
  const short = (text) => `"${text.trim().replace(/\s+/g, " ").slice(0, 40)}"`;

  function* texts(node) {
    for (const child of [...(node.shadowRoot?.childNodes ?? []), ...node.childNodes]) {
      if (child.nodeType === Node.TEXT_NODE && child.data.trim() && up(child).checkVisibility()) yield child;
      if (child.nodeType === Node.ELEMENT_NODE && !/^(STYLE|SCRIPT|TITLE|DESC)$/i.test(child.tagName)) yield* texts(child);
    }
  }

  const numbers = (color) => color.match(/[\d.]+/g).map(Number);
  function background(node) {
    for (let at = node; at; at = up(at)) {
      const [red, green, blue, alpha = 1] = numbers(getComputedStyle(at).backgroundColor);
      if (alpha > 0.5) return [red, green, blue];
    }
    return [255, 255, 255];
  }
  function luminance(channels) {
    const [red, green, blue] = channels.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }
  function contrast(node) {
    const [low, high] = [numbers(getComputedStyle(node).color).slice(0, 3), background(node)].map(luminance).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }

  function size(node) { // font size in pixels of the slide
    const pixels = parseFloat(getComputedStyle(node).fontSize);
    return node.ownerSVGElement ? (pixels * node.getScreenCTM().a) / scale : pixels * (node.currentCSSZoom ?? 1);
  }

  function measureText(text) {
    const node = up(text), range = document.createRange();
    range.selectNodeContents(text);
    const box = range.getBoundingClientRect();
    if (box.width < 2 || box.height < 2 || getComputedStyle(node).clipPath !== "none") return; // text for screen readers only
    const drawn = Boolean(node.ownerSVGElement), inSource = source?.contains(node), word = short(text.data);
    const label = drawn || inSource || node.closest(".legend, summary");
    if (size(node) < (label ? LABEL : TEXT) - 0.5) found.add(`${word} has letters of ${size(node).toFixed(0)} pixels, at least ${label ? "21.3 (16 pt)" : "32 (24 pt)"}`);
    if (!drawn && contrast(node) < CONTRAST) found.add(`${word} has a contrast of ${contrast(node).toFixed(1)}, at least ${CONTRAST}`);
    if (!inSource && box.bottom > floor + 1) found.add(`${word} overflows the slide at the bottom by ${((box.bottom - floor) / scale).toFixed(0)} pixels`);
    for (let at = node; at && at !== slide.parentElement; at = up(at)) {
      const room = at.getBoundingClientRect();
      if (/^(inline|contents)$/.test(getComputedStyle(at).display) || at.namespaceURI.endsWith("svg")) continue;
      if (box.right > room.right + 2 || box.left < room.left - 2) {
        found.add(`${word} is wider than its box by ${(Math.max(box.right - room.right, room.left - box.left) / scale).toFixed(0)} pixels`);
        break;
      }
    }
  }

  function measurePictures() {
    for (const picture of slide.querySelectorAll("figure > svg, img, .timeline, .demo, pre, table")) {
      const box = picture.getBoundingClientRect();
      if (box.bottom > floor + 1 || box.right > frame.right - 20 * scale || box.top < frame.top) {
        found.add(`the ${(picture.classList[0] || picture.tagName).toLowerCase()} overflows the slide, to ${(box.right - frame.left) / scale | 0} x ${(box.bottom - frame.top) / scale | 0}, at most 1260 x ${(floor - frame.top) / scale | 0}`);
      }
      const letters = picture.parentElement.dataset.letters;
      const shown = letters && (letters * box.width) / scale / picture.getAttribute("width");
      if (shown < LABEL - 0.5) found.add(`a figure has letters of ${shown.toFixed(0)} pixels, at least 21.3 (16 pt)`);
    }
    for (const image of slide.querySelectorAll('img, [role="img"]')) {
      if (!(image.alt || image.getAttribute("aria-label") || image.getAttribute("aria-labelledby"))) found.add("an image has no alternative text");
    }
    for (const { attributes: { href: { value } } } of slide.querySelectorAll("a[href]")) {
      if (value.startsWith("#") ? !document.getElementById(value.slice(1)) : !/^https:/.test(value)) found.add(`the link ${value} has no target`);
    }
  }

  const measure = () => { for (const text of texts(slide)) measureText(text); measurePictures(); };
  measure();
  const timelines = [...slide.querySelectorAll(".timeline")];
  for (const box of timelines.filter((one) => one.checkVisibility())) {
    for (const input of box.querySelector("script + div").shadowRoot.querySelectorAll("input")) {
      input.click();
      measure();
    }
  }
  return [...found];
}
