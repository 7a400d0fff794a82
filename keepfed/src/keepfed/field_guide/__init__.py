"""Look up error messages and symptoms of data loading. Each TOML file here is one entry."""

from keepfed.field_guide.entry import Entry, elsewhere, entries, table
from keepfed.field_guide.log import ANY, PATTERNS
from keepfed.field_guide.search import answer, explain, look_up

TOPICS: dict[str, str] = table("words")["topics"]
