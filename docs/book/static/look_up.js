// Look up a message in the field guide, like `course why`. Another script defines FIELD_GUIDE.

const FAR = 300; // maximum number of characters that … stands for
const IS_MESSAGE = /(Error|Exception|Warning|Interrupt)\b|Traceback/;

const plain = (text) =>
  text.replace(/\x1b\[[0-9;]*m/g, "").replace(/[`‘’“”"]/g, "'").toLowerCase().split(/\s+/).filter(Boolean).join(" ");
const wordsOf = (text) => new Set(text.match(/[a-z][a-z0-9]{2,}?(?=s?\b|_)/g));

function pattern(message) {
  const parts = plain(message).split(FIELD_GUIDE.any).map((part) => part.trim().replace(/[.*+?^${}()|[\]\\\/]/g, "\\$&"));
  return new RegExp(parts.join(`.{0,${FAR}}?`));
}

// Return the entries whose message is part of `text`, the longest match first, or those with all of its words.
function lookUp(text) {
  const said = plain(text), length = new Map();
  for (const entry of FIELD_GUIDE.entries) {
    const found = entry.messages.filter((message) => pattern(message).test(said)).map((message) => message.length);
    if (found.length) length.set(entry, Math.max(...found));
  }
  if (!length.size) return said && !IS_MESSAGE.test(text) ? about(said) : [];
  const found = [...length.keys()], special = found.filter((entry) => !entry.general);
  return (special.length ? special : found).sort((one, other) => length.get(other) - length.get(one));
}

function about(said) {
  const part = FIELD_GUIDE.entries.filter((entry) => entry.messages.some((message) => plain(message).includes(said)));
  if (said.length >= 8 && part.length) return part;
  const words = [...wordsOf(said)].filter((word) => !FIELD_GUIDE.small.includes(word));
  const has = (entry, ...more) => {
    const all = wordsOf(plain([entry.name, entry.heading, entry.title, ...entry.messages, ...more].join(" ")));
    return words.filter((word) => all.has(word)).length;
  };
  const found = words.length ? FIELD_GUIDE.entries.filter((entry) => has(entry, entry.why, ...entry.fix) === words.length) : [];
  return found.sort((one, other) => has(other) - has(one));
}

function show(list, text) {
  const found = lookUp(text);
  list.replaceChildren(...found.map((entry) => {
    const item = document.createElement("li"), link = document.createElement("a");
    Object.assign(link, { href: `field_guide/${entry.name}.html`, textContent: entry.title });
    item.append(link, ` ${entry.fix.join(" ")}`);
    return item;
  }));
  if (!found.length && text.trim()) list.append(Object.assign(document.createElement("li"), { textContent: FIELD_GUIDE.unknown }));
}

for (const box of document.querySelectorAll(".look-up")) {
  const field = box.querySelector("textarea"), list = box.querySelector("ul");
  field.addEventListener("input", () => show(list, field.value));
  show(list, field.value);
}
