// Replace the stub of an exercise by a form, if its answers are numbers or labels (docs/book/exercises.py).
// It needs guess.js for `readNumber`.

// Return the number that a text or a calculation such as 78_125 * 128 gives.
function calculate(text) {
  const { guess, problem } = readNumber(text);
  const bare = text.replaceAll(/[\s_]/g, "");
  if (!problem || !/^[\d.e()*\/+-]+$/i.test(bare)) return guess;
  try {
    return Number(Function(`return ${bare}`)());
  } catch {
    return NaN;
  }
}

// Return the feedback for an answer: a card, or nothing if the answer is right.
function feedback([, within, cases], text) {
  if (!within) return cases.find(([label]) => label === text)[1];
  const number = calculate(text);
  const isNear = (value) => Math.abs(number - value) <= within * Math.max(Math.abs(number), Math.abs(value));
  const known = cases.find(([value]) => value === null || isNear(value));
  return known[1].replace(/ = [^:<]+:/, () => ` = ${Number.isNaN(number) ? "no number" : number.toLocaleString("en-US")}:`);
}

for (const place of document.querySelectorAll("[data-exercise]")) {
  const { fields, right } = JSON.parse(place.dataset.exercise);
  const form = document.createElement("form");
  form.className = "guess";
  for (const [name, within, cases] of fields) {
    const label = form.appendChild(document.createElement("label"));
    label.innerHTML = `<code>${name}</code> ${within ? "<input required>" : "<select required><option></option></select>"}`;
    Object.assign(label.lastElementChild, { name, autocomplete: "off" });
    if (!within) for (const [text] of cases) label.lastElementChild.add(new Option(text));
  }
  form.insertAdjacentHTML("beforeend", '<button>Check</button><div aria-live="polite"></div>');
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const cards = fields.map((field) => feedback(field, form.elements[field[0]].value));
    const wrong = cards.filter(Boolean);
    const score = (right) => `${right} of ${cards.length}`; // each card was made while all other answers were right
    form.lastElementChild.innerHTML = wrong[0]?.replace(score(cards.length - 1), score(cards.length - wrong.length)) ?? right;
  });
  place.replaceChildren(form);
}
