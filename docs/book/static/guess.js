// A page asks before it tells: everything between a question and its measurement is hidden until the reader has guessed.
// Without scripts a fold below the question holds the measurement.

const place = document.querySelector("article") ?? document.body;
const blockOf = (element) => element.closest(".cell") ?? element;

// Yield the blocks after `start`, in the order of the page, up to and with `end`.
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

// Keep a guess for the next visit, where the browser allows that.
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
    said.textContent = guess ? `You said ${guess}.` : "You made no guess.";
    form.replaceWith(said);
    if (guess) answer.prepend(said.cloneNode(true));
    dispatchEvent(new Event("resize")); // pictures that were drawn while they were hidden
  };
  setHidden(true);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tell(remembered(key, form.querySelector("input").value.trim()));
  });
  // the search of the browser, or a link, leads into what is hidden
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
