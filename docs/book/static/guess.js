// Hide what follows a question until the reader has made a guess or asks for the answer: everything up to
// the measurement, and from there to the next heading or question. Without scripts, all is shown.

const article = document.querySelector("article") ?? document.body;
const CLOSE = 1.1; // as in course_utils/teaching/notebook/prediction.py, whose sentences these are
const open = new Set(); // questions without a guess, each with the blocks that it hides

// Return the next block of the page that is not a section.
function blockAfter(block) {
  while (!block.nextElementSibling) {
    block = block.parentElement;
    if (!block || block === article) return null;
  }
  block = block.nextElementSibling;
  while (block.matches("section") && block.firstElementChild) block = block.firstElementChild;
  return block;
}

// Return the blocks that the answer to a question explains. Other questions are not among them.
function hiddenBy(question, answer) {
  const blocks = [];
  let measured = false;
  for (let block = blockAfter(question.closest(".cell")); block; block = blockAfter(block)) {
    const asks = block.querySelector(".asked");
    if (measured && (asks || block.matches("h1, h2, h3, h4, h5, h6"))) break;
    measured ||= block.contains(answer);
    if (!asks) blocks.push(block);
  }
  return measured ? blocks : [];
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
function readNumber(text, unit) {
  let bare = text.trim();
  if (unit && bare.endsWith(unit)) bare = bare.slice(0, -unit.length).trim();
  bare = /^[-+]?\d{1,3}(,\d{3})+(\.\d+)?$/.test(bare) ? bare.replaceAll(",", "") : bare.replace(",", ".");
  const number = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(bare) ? Number(bare) : NaN;
  let problem = "";
  if (unit && number < 0) problem = `A number in ${unit} cannot be negative. Enter a number, for example 40.`;
  if (unit === "%" && (number < 0 || number > 100)) problem = "A share must be between 0 and 100 %.";
  if (!Number.isFinite(number)) problem = `'${text}' is not a number. Enter a number, for example 40.`;
  return { guess: number, problem };
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
  let distance = "";
  if (guess * measured > 0) { // otherwise a ratio would be meaningless
    const factor = Math.max(measured / guess, guess / measured);
    const times = factor.toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 }).replace(/\.0$/, "");
    const more = Math.abs(measured) > Math.abs(guess) ? "more" : "less";
    distance = factor <= CLOSE ? ", which is close" : `, ${times} times ${more} than you predicted`;
  }
  return `You predicted ${said}, and it is ${is}${distance}.`;
}

// Replace the measurement by the card that the notebook shows: a sentence and, for numbers, two bars.
function compare(answer, guess, unit) {
  const measured = JSON.parse(answer.dataset.measured);
  const card = answer.querySelector("template").content.firstElementChild.cloneNode(true);
  const [sentence, ...bars] = card.querySelectorAll(":scope > div");
  sentence.textContent = compared(guess, measured, unit);
  const longest = unit.startsWith("%") ? 100 : Math.max(Math.abs(guess), Math.abs(measured)) || 1;
  for (const [order, bar] of bars.entries()) {
    const value = [guess, measured][order];
    bar.querySelector("span > span").style.width = `${(100 * Math.abs(value)) / longest}%`;
    bar.lastElementChild.textContent = inWords(value, unit);
  }
  answer.replaceChildren(card);
}

function ask(question, answer) {
  const unit = question.dataset.unit, key = `guess ${location.pathname} ${question.dataset.key}`;
  const asked = question.querySelector(".question"), choices = [...asked.querySelectorAll("li")];
  const form = document.createElement("form");
  form.className = "guess";
  form.innerHTML = '<fieldset></fieldset><button>Compare</button> <button type="button">Show the answer</button><p role="status"></p>';
  const [fields] = form.children, [shows, status] = form.querySelectorAll("[role], [type]");
  if (!choices.length) fields.innerHTML = `<label>Your guess: <input name="guess" autocomplete="off"></label> ${unit}`;
  for (const choice of choices) {
    fields.insertAdjacentHTML("beforeend", `<label><input type="radio" name="guess"> ${choice.innerHTML}</label>`);
    fields.lastElementChild.firstElementChild.value = choice.dataset.choice;
  }
  asked.querySelector("ul, .unit")?.remove();
  asked.id = `asked-${question.dataset.key}`;
  fields.setAttribute("aria-labelledby", asked.id);
  if (choices.length) fields.setAttribute("role", "radiogroup");
  question.append(form);
  const blocks = hiddenBy(question, answer), entry = { key, blocks, settle };
  for (const block of blocks) block.setAttribute("hidden", "until-found");
  open.add(entry);

  function read(text) {
    if (!choices.length) return readNumber(text, unit);
    return text ? { guess: text } : { problem: "Choose one of these." };
  }
  // Show the answer, and the comparison with a guess. Without a guess, `text` is empty.
  function settle(text) {
    const { guess } = text ? read(text) : {};
    open.delete(entry);
    const others = new Set([...open].flatMap((other) => other.blocks));
    for (const block of blocks) if (!others.has(block)) block.removeAttribute("hidden");
    if (guess !== undefined) compare(answer, guess, unit);
    const said = document.createElement("p");
    Object.assign(said, { className: "guessed", tabIndex: -1 });
    said.textContent = guess === undefined ? "You made no prediction." : `You predicted ${inWords(guess, unit)}.`;
    if (answer.closest("[hidden]")) said.textContent += " Answer the next question, too.";
    form.replaceWith(said);
    dispatchEvent(new Event("resize")); // redraw pictures that were hidden
  }
  function finish(text) {
    settle(remembered(key, text));
    question.lastElementChild.focus(); // the form had the focus, and is gone
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = new FormData(form).get("guess") ?? "", { problem = "" } = read(text);
    status.textContent = problem;
    if (!problem) finish(text);
  });
  shows.addEventListener("click", () => finish(""));
}

// Show hidden text to which a link or a search leads.
function show(element) {
  for (const { blocks, settle } of [...open]) if (blocks.some((block) => block.contains(element))) settle("");
}

// Show the target of the link that led here. A search in the book marks words, perhaps only in hidden text.
function showTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target) show(target);
  const [first, ...more] = article.querySelectorAll(".highlighted");
  if (first && [first, ...more].every((word) => word.closest("[hidden]"))) show(first);
}

const answers = new Map([...document.querySelectorAll(".revealed")].map((answer) => [answer.dataset.key, answer]));
for (const question of document.querySelectorAll(".asked")) {
  if (answers.has(question.dataset.key)) ask(question, answers.get(question.dataset.key));
}
for (const { key, settle } of [...open]) if (remembered(key) !== null) settle(remembered(key));
document.addEventListener("beforematch", (event) => show(event.target));
addEventListener("hashchange", showTarget);
addEventListener("load", showTarget);
