// Look up a message in the field guide, like `keepfed why`. Another script defines FIELD_GUIDE.
// The constants and functions are those of keepfed/src/keepfed/field_guide/search.py and words.py.

const FAR = 300; // maximum number of characters that … stands for
const PART = 8, SHORT = 40, CAUSES = 2, WEAK = 0.4, COVERED = 0.45, LEAST = 1, NEAR = 0.85, MOST = 3, UNKNOWN = 3;
const IS_MESSAGE = /(Error|Exception|Warning|Interrupt)\b|Traceback/;
const ERROR = /^(?:(?:\[[^\]\n]{1,40}\]|\([^)\n]{1,60}\)|\d+:|E  |<std\w+>)[: ]*)*((?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?::.*)?)$/gm;
const IGNORED = /^Exception ignored in.*\n(?:(?:  .*|Traceback.*)\n)*.*$/gm;
const WRAPPER = new RegExp(
  "(ChildFailedError|ProcessRaisedException|RayTaskError|DatasetGenerationError|EOFError" +
    "|BrokenPipeError|ConnectionResetError|KeyboardInterrupt|Dist\\w*Error)\\b" +
    "|\\w+: (Caught \\w+ in DataLoader worker|Traceback \\(most recent)",
);
const COLORS = /\x1b\[[0-9;]*m/g;

const plain = (text) => text.replace(COLORS, "").replace(/[`‘’“”"]/g, "'").toLowerCase().split(/\s+/).filter(Boolean).join(" ");
const once = (make) => { let made; return () => (made ??= make()); };
const sum = (items, of) => [...items].reduce((total, item) => total + of(item), 0);

function pattern(message) {
  const texts = plain(message).split(FIELD_GUIDE.any).map((part) => part.trim());
  const parts = texts.map((part) => part.replace(/[.*+?^${}()|[\]\\\/]/g, "\\$&"));
  const start = /^[a-z0-9]/i.test(message) ? "(?<![a-z0-9])" : "";
  const all = new RegExp(start + parts.join(`.{0,${FAR}}?`));
  return { exec: (said) => (texts.every((part) => said.includes(part)) ? all.exec(said) : null) };
}

const compiled = once(() => new Map(FIELD_GUIDE.entries.map((entry) => [entry, entry.messages.map(pattern)])));

// Return the entries that explain `text`, the best match first.
function lookUp(text) {
  const said = plain(text), found = new Map();
  for (const [entry, patterns] of compiled()) {
    const spans = patterns.map((one) => one.exec(said)?.[0]).filter(Boolean);
    if (spans.length) found.set(entry, spans);
  }
  if (!found.size) {
    const isLog = IS_MESSAGE.test(text) || said.split(" ").length > SHORT;
    return !said || isLog || elsewhere(said) ? [] : about(said);
  }
  const best = Math.min(...[...found.keys()].map((entry) => entry.rank));
  if (best >= CAUSES && (elsewhere(said) || unexplained(text, found))) return [];
  const length = (entry) => sum(found.get(entry), (span) => span.length);
  const listed = [...found.keys()].filter((entry) => entry.rank === best).sort((one, other) => length(other) - length(one));
  const inside = (span, others) => others.some((one) => found.get(one).some((other) => other.includes(span) && other !== span));
  return listed.filter((entry, place) => !found.get(entry).every((span) => inside(span, listed.slice(0, place))));
}

// Return the sentence for a text that has nothing to do with loading.
function elsewhere(said) {
  return Object.entries(FIELD_GUIDE.elsewhere).find(([message]) => pattern(message).exec(said))?.[1];
}

function errors(text) {
  const lines = text.replace(COLORS, "").replace(/\r\n?/g, "\n").replace(IGNORED, "");
  return [...lines.matchAll(ERROR)].map((match) => match[1].trim()).filter((error) => !WRAPPER.test(error));
}

function unexplained(text, found) {
  const explains = (error) => ([entry, spans]) =>
    compiled().get(entry).some((one) => one.exec(error)) || spans.some((span) => span.includes(error));
  return errors(text).some((error) => ![...found].some(explains(plain(error))));
}

const stem = (word) => word.replace(/(?<=..[a-z])(ers?|ing|ed|es|e|(?<!s)s)$/, "");
const same = once(() => new Map(FIELD_GUIDE.synonyms.flatMap((line) => line.map((word) => [stem(word), stem(line[0])]))));

function wordsOf(text) {
  const words = (text.toLowerCase().match(/[a-z][a-z0-9]+/g) ?? []).filter((word) => !FIELD_GUIDE.small.includes(word));
  return new Set(words.map(stem).map((word) => same().get(word) ?? word));
}

const vocabulary = once(() => new Map(FIELD_GUIDE.entries.map((entry) => {
  const symptoms = [entry.title, ...entry.symptoms];
  const strong = wordsOf([entry.name.replaceAll("_", " "), ...symptoms, ...entry.messages].join(" "));
  const weak = wordsOf([entry.heading, entry.why, ...entry.fix].join(" "));
  return [entry, { strong, all: new Set([...strong, ...weak]), symptoms: symptoms.map(wordsOf) }];
})));
const weights = new Map();

function weight(word) {
  if (!weights.has(word)) {
    const entries = [...vocabulary().values()];
    const frequency = entries.filter(({ all }) => all.has(word)).length;
    weights.set(word, frequency ? Math.log((entries.length + 1) / (frequency + 0.5)) : UNKNOWN);
  }
  return weights.get(word);
}

function likeness(asked, words) {
  const both = sum([...asked].filter((word) => words.has(word)), weight), sizes = sum([...asked, ...words], weight);
  return sizes ? (2 * both) / sizes : 0;
}

function about(said) {
  const named = FIELD_GUIDE.entries.filter((entry) => entry.name === said.replaceAll(" ", "_"));
  if (named.length) return named;
  const part = FIELD_GUIDE.entries.filter((entry) => entry.messages.some((message) => plain(message).includes(said)));
  return said.length >= PART && part.length ? part : byWords(said);
}

function byWords(said) {
  const asked = wordsOf(said), total = sum(asked, weight), scores = new Map();
  if (!asked.size) return [];
  for (const [entry, { strong, all, symptoms }] of vocabulary()) {
    const known = [...asked].filter((word) => all.has(word));
    const ofBag = sum(known, (word) => weight(word) * (strong.has(word) ? 1 : WEAK));
    const ofSymptom = Math.max(...symptoms.map((words) => likeness(asked, words)));
    scores.set(entry, ofBag / total > COVERED ? ofBag / total + 1.5 * ofSymptom : 0);
  }
  const best = [...scores.keys()].sort((one, other) => scores.get(other) - scores.get(one)).slice(0, MOST);
  const least = Math.max(LEAST, NEAR * scores.get(best[0]));
  return best.filter((entry) => scores.get(entry) >= least);
}

function notKnown(text) {
  const sentence = elsewhere(plain(text)), [error] = errors(text);
  if (sentence) return `Not about loading data: ${sentence}`;
  return error ? `Not known. The first error is ${error}. Start there.` : `Not known. ${FIELD_GUIDE.unknown}`;
}

function show(list, text) {
  const found = lookUp(text);
  list.replaceChildren(...found.map((entry) => {
    const item = document.createElement("li"), link = document.createElement("a");
    Object.assign(link, { href: `field_guide/${entry.name}.html`, textContent: entry.title });
    const parts = ` ${entry.fix.join(" ")}`.split("`"); // every second one is code
    item.append(link, ...parts.map((part, n) => (n % 2 ? Object.assign(document.createElement("code"), { textContent: part }) : part)));
    return item;
  }));
  if (!found.length && text.trim()) list.append(Object.assign(document.createElement("li"), { textContent: notKnown(text) }));
}

for (const box of document.querySelectorAll(".look-up")) {
  const field = box.querySelector("textarea"), list = box.querySelector("ul");
  field.addEventListener("input", () => show(list, field.value));
  show(list, field.value);
}
