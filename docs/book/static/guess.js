// Hide everything between a question and its measurement until the reader has entered a guess.
// Without scripts, the measurement is folded below the question.

const place = document.querySelector("article") ?? document.body;
const blockOf = (element) => element.closest(".cell") ?? element;

// Yield the blocks after `start`, in page order, up to and including `end`.
function* blocksUpTo(start, end) {
  let block = start;
  while (block !== end) {
    while (!block.nextElementSibling) {
      block = block.parentElement;
      if (!block || block === place) return;
    }
    block = block.nextElementSibling;
    while (block !== end && block.contains(end)) block = block.firstElementChild;
    yield block;
  }
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

function ask(question, answer) {
  const key = `guess ${location.pathname} ${question.dataset.key}`;
  const hidden = [...blocksUpTo(blockOf(question), blockOf(answer))];
  const form = document.createElement("form");
  form.className = "guess";
  form.innerHTML = '<label>Your guess: <input autocomplete="off"></label> <button>Show the measurement</button>';
  question.querySelector("details")?.remove();
  question.append(form);
  const setHidden = (value) => {
    for (const block of hidden) value ? block.setAttribute("hidden", "until-found") : block.removeAttribute("hidden");
  };
  const tell = (guess) => {
    setHidden(false);
    const said = document.createElement("p");
    said.className = "guessed";
    said.textContent = guess ? `You predicted ${guess}.` : "You made no prediction.";
    form.replaceWith(said);
    if (guess) answer.prepend(said.cloneNode(true));
    dispatchEvent(new Event("resize")); // redraw pictures that were hidden
  };
  setHidden(true);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tell(remembered(key, form.querySelector("input").value.trim()));
  });
  // the search of the browser, or a link, may lead to hidden text
  for (const block of hidden) block.addEventListener("beforematch", () => form.isConnected && tell(""));
  const aim = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const before = remembered(key);
  if (before !== null || (aim && hidden.some((block) => block.contains(aim)))) tell(before ?? "");
}

for (const question of document.querySelectorAll(".asked")) {
  const answers = [...document.querySelectorAll(".revealed")];
  const answer = answers.find((one) => one.dataset.key === question.dataset.key);
  if (answer) ask(question, answer);
}
