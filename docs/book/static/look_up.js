// Look up a message in the field guide, like `keepfed why`. Another script defines FIELD_GUIDE.
// The functions and constants are those of log.py, words.py and search.py in keepfed/src/keepfed/field_guide.

const FAR = 300, PLACES = 100, AROUND = 2000, AFAR = 10000, NEAR = 0.34, MOST = 3, OWN_CODE = 1, WORKER = "in dataloader worker process";
const SUFFIX = /(?<=..[a-z])(ers?|ing|ed|es|e|(?<!s)s)$/, ENTRIES = FIELD_GUIDE.rows.filter((row) => row.name);

const pattern = (name, flags = "gm") => new RegExp(FIELD_GUIDE.patterns[name], flags);
const plain = (text) => text.replace(pattern("colors"), "").replace(/[`‘’“”"]/g, "'").toLowerCase().split(/\s+/).filter(Boolean).join(" ");
const once = (make) => { let made; return () => (made ??= make()); };
const sum = (items, of) => [...items].reduce((total, item) => total + of(item), 0);
const compiled = new Map();

// Return where a message occurs in a plain text.
function places(message, said) {
  if (!compiled.has(message)) {
    const parts = plain(message).split(FIELD_GUIDE.any).map((part) => part.trim());
    const escaped = parts.map((part) => part.replace(/[.*+?^${}()|[\]\\\/]/g, "\\$&"));
    const start = /^[\p{L}\p{N}]/u.test(message) ? "(?<![a-z0-9])" : "";
    compiled.set(message, { parts, all: new RegExp(start + escaped.join(`.{0,${FAR}}?`), "g") });
  }
  const { parts, all } = compiled.get(message);
  if (!parts.every((part) => said.includes(part))) return [];
  return [...said.matchAll(all)].slice(-PLACES).map((match) => [match.index, match.index + match[0].length]);
}

// Return the errors of a log that wrap no other error.
function errors(text) {
  const lines = text.replace(pattern("colors"), "").replace(/\r\n?/g, "\n").replace(pattern("ignored"), "");
  return [...lines.matchAll(pattern("error"))].map((match) => match[1].trim()).filter((error) => !pattern("wrapper", "m").test(error));
}

const synonyms = once(() => {
  const lines = FIELD_GUIDE.words.synonyms.split("\n").map((line) => line.split(" ").map((word) => word.replace(SUFFIX, "")));
  return new Map(lines.flatMap((line) => line.map((stem) => [stem, line[0]])));
});
const small = once(() => new Set(FIELD_GUIDE.words.small.split(/\s+/)));

function wordsOf(text) {
  const stems = (text.toLowerCase().match(/[a-z][a-z0-9]+|%/g) ?? []).filter((word) => !small().has(word)).map((word) => word.replace(SUFFIX, ""));
  return new Set(stems.map((stem) => synonyms().get(stem) ?? stem));
}

const texts = once(() => new Map(ENTRIES.map((row) => [row, [row.title, ...row.symptoms, ...row.messages].map(wordsOf)])));
const weights = new Map();

function weight(word) {
  if (!weights.has(word)) {
    const count = sum(texts().values(), (each) => each.some((words) => words.has(word)));
    weights.set(word, Math.log((ENTRIES.length + 1) / (count + 0.5)));
  }
  return weights.get(word);
}

function likeness(asked, words) {
  const both = [...asked].filter((word) => words.has(word));
  if (both.length < Math.max(1, Math.min(2, asked.size))) return 0;
  return both.length === asked.size && both.length === words.size ? 1 : (2 * sum(both, weight)) / sum([...asked, ...words], weight);
}

// Return the spans of the rows whose messages, or hints near a sign of loading, occur outside of longer matches.
function matches(said) {
  const found = [], kept = new Map(), rows = said.includes(WORKER) ? ENTRIES : FIELD_GUIDE.rows;
  const isNearSign = ([start, end]) => FIELD_GUIDE.words.loading.some((sign) => said.slice(Math.max(start - AROUND, 0), end + AROUND / 4).includes(sign));
  for (const row of rows) for (const message of row.messages) for (const span of places(message, said)) found.push([span, row]);
  for (const row of rows) for (const hint of row.hints) found.push(...places(hint, said).filter(isNearSign).map((span) => [span, row]));
  for (const [span, row] of found) {
    const holds = ([other, owner]) => owner !== row && String(other) !== String(span) && other[0] <= span[0] && span[1] <= other[1];
    if (!found.some(holds)) kept.set(row, [...(kept.get(row) ?? []), span]);
  }
  return kept;
}

const less = (one, other) => one.map((value, n) => value - other[n]).find(Boolean) ?? 0;
const distance = (place, spans) => spans.map(([start, end]) => [Math.max(place[0] - end, start - place[1], 0), start - end]).sort(less)[0];

// Return { entries, near, elsewhere }: what explains a text, what may, or what else it is about.
function answer(text) {
  const said = plain(text);
  const raised = [...new Set(errors(text).map(plain))].slice(-PLACES).map((error) => [said.lastIndexOf(error), said.lastIndexOf(error) + error.length]);
  const last = raised.at(-1) ?? [said.length, said.length], kept = matches(said), spans = [...kept.values()].flat();
  const order = new Map([...kept].map(([row, spans]) => [row, [row.rank, ...distance(last, spans)]]));
  const [first, ...more] = [...kept.keys()].sort((one, other) => less(order.get(one), order.get(other)));
  const gaps = spans.length ? raised.map((error) => distance(error, spans)[0]) : [];
  if (!first || (first.rank > OWN_CODE && gaps.some(Boolean)) || (gaps.at(-1) ?? 0) > AFAR) return question(raised.length ? said.slice(...last) : said, pattern("message", "m").test(text.slice(0, 1000)));
  if (!first.name) return { entries: [], near: [], elsewhere: first.title };
  return { entries: [first, ...more.filter((row) => row.name && row.rank === first.rank)], near: [], elsewhere: "" };
}

function question(said, isMessage) {
  const named = ENTRIES.filter((row) => row.name === said.replaceAll(" ", "_")), asked = wordsOf(said);
  if (named.length) return { entries: named, near: [], elsewhere: "" };
  const alike = new Map(ENTRIES.map((row) => [row, Math.max(...texts().get(row).map((words) => likeness(asked, words)))]));
  const ordered = [...ENTRIES].sort((one, other) => alike.get(other) - alike.get(one));
  const same = ordered.filter((row) => alike.get(row) === 1);
  if (!/^\p{L}+$/u.test(said) && same.length === 1) return { entries: same, near: [], elsewhere: "" };
  const hinted = ordered.filter((row) => isMessage && row.hints.some((hint) => places(hint, said).length));
  const near = [...new Set([...hinted, ...ordered.filter((row) => alike.get(row) >= NEAR)])].slice(0, MOST);
  return { entries: [], near, elsewhere: "" };
}

function lookUp(text) {
  const { entries, near } = answer(text);
  return entries.length || pattern("message", "m").test(text.slice(0, 1000)) ? entries : near;
}

function show(list, text) {
  const { entries, near, elsewhere } = answer(text), [error] = errors(text);
  const lines = [...entries, ...near].map((row) => {
    const item = document.createElement("li"), link = document.createElement("a");
    Object.assign(link, { href: `field_guide/${row.name}.html`, textContent: row.title });
    const parts = ` ${entries.length ? row.fix.join(" ") : ""}`.split("`"); // every second one is code
    item.append(link, ...parts.map((part, n) => (n % 2 ? Object.assign(document.createElement("code"), { textContent: part }) : part)));
    return item;
  });
  const say = (textContent) => Object.assign(document.createElement("li"), { textContent });
  if (near.length) lines.unshift(say("Is it one of these?"));
  else if (elsewhere) lines.push(say(`Not about loading data: ${elsewhere}`));
  else if (!entries.length && text.trim()) lines.push(say(`Not known. ${error ? `The first error is ${error}. Start there.` : FIELD_GUIDE.prints.not_known}`));
  list.replaceChildren(...lines);
}

for (const box of document.querySelectorAll(".look-up")) {
  const field = box.querySelector("textarea"), list = box.querySelector("ul");
  field.addEventListener("input", () => show(list, field.value));
  show(list, field.value);
}
