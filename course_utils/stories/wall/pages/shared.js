const EVERY_MS = 2000, TARGET_AU = 0.9, address = new URLSearchParams(location.search), token = address.get("token");
const byId = (id) => document.getElementById(id);

// Texts are untrusted, so everything is inserted as text, never as HTML.
function make(tag, content, attributes = {}, space = "http://www.w3.org/1999/xhtml") {
  const node = document.createElementNS(space, tag);
  node.append(...[content].flat());
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function say(id, sentence) {  // a screen reader reads every change
  if (byId(id).textContent !== sentence) byId(id).textContent = sentence;
}

// Return the answer of the server, or throw an error with its sentence.
async function ask(path, body, bearer = token) {
  const post = body && { method: "POST", body: JSON.stringify(body) };
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${bearer}` }, ...post });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.status === 204 ? null : answer.json();
}

const failure = (error) => (error instanceof TypeError ? "The server does not answer. This page keeps trying." : error.message);

// Refresh the page at once, and then every two seconds.
async function follow(refresh) {
  try {
    await refresh();
  } catch (error) {
    say("state", failure(error));
  }
  setTimeout(() => follow(refresh), EVERY_MS);
}

// Fill a form with the answers to a question: a button for each choice, or a field for a number.
function fill(form, { text, unit, choices }, label, send) {
  form.onsubmit = (event) => {
    event.preventDefault();
    const value = event.submitter.value || form.querySelector("input").value.trim().replace(",", ".");
    if (choices.length) send(value);
    else if (value === "" || !Number.isFinite(Number(value))) say("state", "Enter a number, for example 40.");
    else send(Number(value));
  };
  const fields = !text ? [] : choices.length
    ? choices.map((choice) => make("button", choice, { class: "choice", value: choice }))
    : [make("input", [], { inputmode: "decimal", "aria-label": label, autocomplete: "off" }), make("span", unit), make("button", "Send")];
  form.replaceChildren(...fields);
}

function row(name, value, most, shown = String(value)) {
  return make("div", [make("span", name), make("meter", [], { max: Math.max(1, most), value, "aria-hidden": true }), make("span", shown)], { class: "row" });
}

// Return a table with the results of notebook 13 for each set of faults, best first.
function tables(results) {
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const cells = (result) => [
    make("td", result.name, { class: "name" }),
    ...[`${result.points} points`, `AU ${percent(result.au)}${result.au >= TARGET_AU ? " ✓" : ""}`, `first step ${result.start_up_s.toFixed(1)} s`].map((text) => make("td", text)),
  ];
  return [...new Set(results.map(({ seed }) => seed))].sort((a, b) => a - b).map((seed) => make("table", [
    make("caption", seed ? `Notebook 13, faults of seed ${seed}` : "Notebook 13"),
    ...results.filter((result) => result.seed === seed).map((result) => make("tr", cells(result))),
  ]));
}
