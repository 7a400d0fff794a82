"""A box to look up a message, and buttons that run the programs of the entries."""

from typing import Any

from ipywidgets import HTML, Button, HBox, Textarea, VBox

from course_utils.stories.field_guide.cards import entry_card
from course_utils.stories.field_guide.programs import missing_requirement, show
from course_utils.teaching.notebook import card
from keepfed.field_guide import Entry, look_up, not_known


class Search(VBox):  # type: ignore[misc]
    """A box for a message or some words, with the matching entries below it."""

    def __init__(self, text: str = ""):
        self.text = Textarea(
            text,
            description="Message:",
            placeholder="paste a message or the end of a log, or type some words",
            rows=3,
            layout={"width": "46em", "max_width": "100%"},
        )
        button = Button(description="Look it up")
        button.on_click(self.look_up)
        self.found = VBox()
        super().__init__([HBox([self.text, button], layout={"flex_flow": "wrap"}), self.found])
        self.look_up()

    def look_up(self, _: Any = None) -> None:
        """Show what the field guide knows about the text in the box."""
        found = look_up(self.text.value)
        text = self.text.value
        unknown = [HTML(card("open", "No entry", not_known(text)))] if text.strip() else []
        self.found.children = [*map(_Found, found)] or unknown


class _Found(VBox):  # type: ignore[misc]
    """An entry, and a button that runs its program if this machine can run it."""

    def __init__(self, entry: Entry):
        result, why = HTML(entry_card(entry)), missing_requirement(entry)
        button = Button(description=f"Not run here: {why}" if why else "Run it", disabled=bool(why))
        button.layout.width = "max-content"

        def run(_: Any) -> None:
            button.disabled, button.description = True, "Running"
            result.value = show(entry.name)._repr_html_()
            button.disabled, button.description = False, "Run it again"

        button.on_click(run)
        super().__init__([result, button])
