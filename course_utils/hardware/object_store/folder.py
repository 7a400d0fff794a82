"""Which files an object store shows: those inside one folder, and no others.

What a client asks for is a name. It is looked at twice: as it is spelled, and, since a link may
lead anywhere, as the file that it comes to. Between the second look and the opening of the file
somebody who may write to the folder could still put a link there; they could as well put the file.
"""

from __future__ import annotations

import html
import os
from pathlib import Path
from urllib.parse import quote, urlencode

from course_utils.errors import CourseError

MISSING = "There is no such file here; ask for a name from the listing at /."
_NEVER_IN_A_NAME = "\\\0:" if os.name == "nt" else "\\\0"


class ObjectFolder:
    """The files of one folder, by names with `/` between their parts."""

    def __init__(self, root: str | os.PathLike[str]):
        """Look at the folder that is to be shown.

        Raises:
            CourseError: it is not there, or is no folder.
        """
        self.root = Path(root).resolve()
        if not self.root.exists():
            raise CourseError(f"There is no folder {self.root}; make it, or name another.")
        if not self.root.is_dir():
            raise CourseError(f"{self.root} is a file; name the folder that holds it.")

    def find(self, name: str) -> Path:
        """Return the file or folder of that name; "" is the folder itself, and a `/` may end it.

        Raises:
            PermissionError: the name leads out of the folder, or to something hidden.
            FileNotFoundError: there is no such file or folder, or it is neither.
        """
        parts = name.removesuffix("/").split("/") if name else []
        if any(not _is_plain(part) for part in parts):
            raise PermissionError(
                "Only what lies inside the folder that is served can be had, and nothing whose "
                "name begins with a dot; ask for a name from the listing at /."
            )
        try:
            found = self.root.joinpath(*parts).resolve()
            regular = found.is_file() or found.is_dir()
        except (OSError, RuntimeError):  # a name longer than names can be, links in a circle
            regular = False
        if regular and not self._shows(found):
            raise PermissionError(
                "This link leads to something that is not served; put the file itself there."
            )
        if not regular or (name.endswith("/") and not found.is_dir()):
            raise FileNotFoundError(MISSING)
        return found

    def listing(self, name: str, *, token: str = "") -> str:
        """Return a page of HTML with a link to everything in a folder.

        Args:
            name: the folder, as `find` takes it.
            token: goes into every link, for a browser, which sends no header of ours.

        Raises:
            OSError: as `find` does, or the system's own, which names the whole path.
        """
        prefix = f"{name.removesuffix('/')}/" if name else ""
        query = f"?{urlencode({'token': token})}" if token else ""
        links = [
            f'<li><a href="/{quote(prefix + entry)}{query}">{html.escape(entry)}</a></li>'
            for entry in self._entries(name, prefix)
        ]
        title = html.escape(f"/{prefix}")
        return "\n".join(
            [
                '<!doctype html><html lang="en"><meta charset="utf-8">',
                f"<title>{title}</title><h1>{title}</h1><ul>",
                *links,
                "</ul></html>\n",
            ]
        )

    def _entries(self, name: str, prefix: str) -> list[str]:
        entries = []
        for child in sorted(entry.name for entry in self.find(name).iterdir()):
            try:
                is_folder = self.find(prefix + child).is_dir()
            except OSError:
                continue  # hidden, a link that leads out, or gone meanwhile
            if child.isprintable():  # a name that is no UTF-8 could not be asked for
                entries.append(f"{child}/" if is_folder else child)
        return entries

    def _shows(self, found: Path) -> bool:
        if not found.is_relative_to(self.root):
            return False
        return not any(part.startswith(".") for part in found.relative_to(self.root).parts)


def _is_plain(part: str) -> bool:
    return bool(part) and not part.startswith(".") and not set(part) & set(_NEVER_IN_A_NAME)
