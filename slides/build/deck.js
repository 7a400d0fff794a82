// Start the deck: theme, steps through code, timelines that keys switch. Follows the timeline's module.

const asked = new URLSearchParams(location.search), root = document.documentElement;
const paper = asked.get("view") === "print";
const setTheme = (dark) => root.classList.toggle("dark", dark && !paper);
setTheme(asked.get("theme") === "dark");

// What a slide has no room for, and letters large enough for the last row.
const ON_A_SLIDE = new CSSStyleSheet();
ON_A_SLIDE.replaceSync(`
  .tl { border: 0; padding: 0; background: transparent; }
  .bar, details { display: none; }
  .controls legend { display: none; }
  .choice span { font-size: 15px; }
  .facts { display: none; }
  .tl .sentence { margin-top: 6px; font-size: 17px !important; }
  .legend { font-size: 13px; }
`);
mountAll();
for (const box of document.querySelectorAll(".timeline")) {
  box.querySelector("script").nextElementSibling.shadowRoot.adoptedStyleSheets = [ON_A_SLIDE];
}

// The digits 1 to 9 choose a state of the timeline on the slide that is shown.
function chooseState(event) {
  const slide = Reveal.getCurrentSlide(), host = slide?.querySelector(".timeline script + div");
  const choice = host?.shadowRoot.querySelectorAll("input")[Number(event.key) - 1];
  if (!choice || event.ctrlKey || event.metaKey || event.altKey) return;
  choice.click();
  choice.focus();
  event.stopPropagation();
}
addEventListener("keydown", (event) => { if (/^[1-9]$/.test(event.key)) chooseState(event); }, true);

// Lines of code stand out in turn: as many steps as of the fragments behind the code are visible.
function stepThrough(pre) {
  const steps = pre.dataset.steps.split("|").map(ranges);
  const now = steps[Math.min(pre.querySelectorAll(".step.visible").length, steps.length - 1)];
  pre.querySelectorAll(".line").forEach((line, i) => line.classList.toggle("dim", !paper && !now.has(i + 1)));
}

function ranges(text) {
  const lines = new Set();
  for (const part of text.split(",")) {
    const [first, last = first] = part.split("-").map(Number);
    for (let line = first; line <= last; line++) lines.add(line);
  }
  return lines;
}
const stepAll = () => document.querySelectorAll("pre[data-steps]").forEach(stepThrough);

const deck = new Reveal({
  width: 1280, height: 720, margin: 0, center: false, hash: true, slideNumber: "c/t", transition: "none",
  backgroundTransition: "none", pdfSeparateFragments: false, plugins: [RevealNotes],
  keyboard: { 68: () => setTheme(!root.classList.contains("dark")) },
});
window.Reveal = deck;
await deck.initialize();
deck.on("fragmentshown", stepAll);
deck.on("fragmenthidden", stepAll);
deck.on("slidechanged", stepAll);
stepAll();
root.dataset.ready = "yes";
