// Hide what follows a question until the reader has made a guess or asks for the answer: everything up to
// the measurement, and from there to the next heading or question. Without scripts, all is shown.
// Guesses are read and compared as in course_utils/teaching/notebook/prediction.py.

const CLOSE = 1.1; // ratio to the measurement
const article = document.querySelector("article") ?? document.body;
const unanswered = new Set(); // the questions without a guess: { key, blocks, settle }

// Return the next block of the page that is not a section.
function blockAfter(block) {
  while (block !== article && !block.nextElementSibling) block = block.parentElement;
  if (block === article) return null;
  block = block.nextElementSibling;
  while (block.matches("section") && block.firstElementChild) block = block.firstElementChild;
  return block;
}

// Return the blocks that a question hides. Other questions are not among them.
function hiddenBy(question, answer) {
  const blocks = [];
  let measured = false;
  for (let block = blockAfter(question.closest(".cell")); block; block = blockAfter(block)) {
    const asks = block.querySelector(".asked");
    if (measured && (asks || block.matches("h1, h2, h3, h4, h5, h6"))) break;
    measured ||= block.contains(answer);
    if (!asks) blocks.push(block);
  }
  return blocks;
}

// Store a guess for the next visit, if the browser allows it, and return it.
function remembered(key, guess) {
  try {
    if (guess !== undefined) localStorage.setItem(key, guess);
    return localStorage.getItem(key);
  } catch {
    return guess ?? null;
  }
}

// Return the number in a text, and a sentence if there is a problem with it.
function readNumber(text, unit = "") {
  let bare = text.trim();
  if (unit && bare.endsWith(unit)) bare = bare.slice(0, -unit.length).trim();
  bare = /^[-+]?\d{1,3}(,\d{3})+(\.\d+)?$/.test(bare) ? bare.replaceAll(",", "") : bare.replace(",", ".");
  const guess = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(bare) ? Number(bare) : NaN;
  let problem = "";
  if (unit && guess < 0) problem = `A number in ${unit} cannot be negative. Enter a number, for example 40.`;
  if (unit === "%" && (guess < 0 || guess > 100)) problem = "A share must be between 0 and 100 %.";
  if (!Number.isFinite(guess)) problem = `${bare && `'${text}' is not a number. `}Enter a number, for example 40.`;
  return { guess, problem };
}

// Return a number with its unit, or a choice.
function inWords(value, unit) {
  if (typeof value === "string") return value;
  const isLarge = Math.abs(value) >= 100;
  const number = isLarge ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3)));
  return `${number} ${number === "1" && unit === "times" ? "time" : unit}`.trim();
}

// Return the comparison of a guess with the measurement as a sentence.
function compared(guess, measured, unit) {
  const quote = typeof guess === "string" ? '"' : "";
  const [said, is] = [guess, measured].map((value) => quote + inWords(value, unit) + quote);
  if (guess === measured) return `You predicted ${said}, which is correct.`;
  if (!(guess * measured > 0)) return `You predicted ${said}, and it is ${is}.`; // without a ratio
  const factor = Math.max(measured / guess, guess / measured);
  const times = factor.toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 }).replace(/\.0$/, "");
  const more = Math.abs(measured) > Math.abs(guess) ? "more" : "less";
  return `You predicted ${said}, and it is ${is}, ${factor <= CLOSE ? "which is close" : `${times} times ${more} than you predicted`}.`;
}

// Replace the measurement by the card of the notebook: a sentence and, for numbers, two bars.
function compare(answer, guess, unit) {
  const values = [guess, JSON.parse(answer.dataset.measured)];
  const card = answer.querySelector("template").content.firstElementChild.cloneNode(true);
  const [sentence, ...bars] = card.querySelectorAll(":scope > div");
  sentence.textContent = compared(...values, unit);
  const longest = unit.startsWith("%") ? 100 : Math.max(...values.map(Math.abs)) || 1;
  for (const [order, bar] of bars.entries()) {
    bar.querySelector("span > span").style.width = `${(100 * Math.abs(values[order])) / longest}%`;
    bar.lastElementChild.textContent = inWords(values[order], unit);
  }
  answer.replaceChildren(card);
}

function ask(question, answer) {
  const unit = question.dataset.unit, key = `guess ${location.pathname} ${question.dataset.key}`;
  const asked = question.querySelector(".question"), choices = [...asked.querySelectorAll("li")];
  const form = document.createElement("form");
  form.className = "guess";
  form.innerHTML = `<fieldset aria-labelledby="asked-${question.dataset.key}"></fieldset><button>Compare</button>
    <button type="button">Show the answer</button><p role="status"></p>`;
  const [fields, , shows, status] = form.children;
  if (choices.length) fields.setAttribute("role", "radiogroup");
  else fields.innerHTML = `<label>Your guess: <input name="guess" autocomplete="off"></label> ${unit}`;
  for (const choice of choices) {
    fields.insertAdjacentHTML("beforeend", `<label><input type="radio" name="guess"> ${choice.innerHTML}</label>`);
    fields.lastElementChild.firstElementChild.value = choice.dataset.choice;
  }
  asked.querySelector("ul, .unit")?.remove();
  asked.id = `asked-${question.dataset.key}`;
  question.append(form);
  const blocks = hiddenBy(question, answer), entry = { key, blocks, settle };
  for (const block of blocks) block.setAttribute("hidden", "until-found");
  unanswered.add(entry);

  function read(text) {
    if (!choices.length) return readNumber(text, unit);
    return { guess: text, problem: text ? "" : "Choose one of these." };
  }
  // Show the answer, and the comparison with a guess, if there is one.
  function settle(text) {
    const { guess } = text ? read(text) : {};
    unanswered.delete(entry);
    const others = new Set([...unanswered].flatMap((other) => other.blocks));
    for (const block of blocks) if (!others.has(block)) block.removeAttribute("hidden");
    if (text) compare(answer, guess, unit);
    form.outerHTML = '<p class="guessed" tabindex="-1"></p>';
    const waits = answer.closest("[hidden]") ? " Answer the next question, too." : "";
    question.lastElementChild.textContent = (text ? `You predicted ${inWords(guess, unit)}.` : "You made no prediction.") + waits;
    dispatchEvent(new Event("resize")); // redraw pictures that were hidden
  }
  function finish(text) {
    settle(remembered(key, text));
    question.lastElementChild.focus(); // the form had the focus, and is gone
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = new FormData(form).get("guess") ?? "";
    status.textContent = read(text).problem;
    if (!status.textContent) finish(text);
  });
  shows.addEventListener("click", () => finish(""));
}

// Show hidden text to which a link or a search leads.
function show(element) {
  for (const { blocks, settle } of [...unanswered]) if (blocks.some((block) => block.contains(element))) settle("");
}

// Show the target of the link that led here. A search in the book marks words, perhaps only in hidden text.
function showTarget() {
  show(document.getElementById(decodeURIComponent(location.hash.slice(1))));
  const marked = [...article.querySelectorAll(".highlighted")];
  if (marked.every((word) => word.closest("[hidden]"))) show(marked[0] ?? null);
}

for (const question of document.querySelectorAll(".asked")) {
  const answer = [...document.querySelectorAll(".revealed")].find(({ dataset }) => dataset.key === question.dataset.key);
  if (answer) ask(question, answer);
}
for (const { key, settle } of [...unanswered]) if (remembered(key) !== null) settle(remembered(key));
document.addEventListener("beforematch", (event) => show(event.target));
addEventListener("hashchange", showTarget);
addEventListener("load", showTarget);
