"""Look up error messages and symptoms of data loading in the field guide.

    look_up("DataLoader worker (pid 4711) is killed by signal: Bus error.")
    print(explain("the GPU is idle"))

Each TOML file in this folder is one entry: messages, cause, fix, and a program that shows both.
"""

from keepfed.field_guide.entry import ROLES, TOPICS, Entry, entries
from keepfed.field_guide.search import ANY, explain, look_up, not_known
from keepfed.field_guide.words import SYNONYMS
