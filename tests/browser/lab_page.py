"""Drive one page of a real JupyterLab, and record everything that would disturb a learner."""

from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import BrowserContext, Page, Request, expect

CODE = "code, pre, kbd"
FIRST = "work/00_start_here.ipynb"
_NOTEBOOK = ".jp-NotebookPanel:not(.lm-mod-hidden)"
_IDLE = """() => {
    const panel = window.jupyterapp?.shell.currentWidget;
    return panel?.sessionContext?.session?.kernel?.status === 'idle'
}"""
_ALL_RAN = """() => {
    const panel = window.jupyterapp.shell.currentWidget;
    const cells = [...panel.content.widgets].filter(
        cell => cell.model.type === 'code' && cell.model.sharedModel.getSource().trim());
    return panel.sessionContext.session.kernel.status === 'idle'
        && cells.every(cell => cell.model.executionState !== 'running')
}"""
_OUTPUTS = """() => window.jupyterapp.shell.currentWidget.content.widgets
    .filter(cell => cell.model.type === 'code')
    .map(cell => ({tags: cell.model.sharedModel.getMetadata('tags') ?? [],
                   count: cell.model.executionCount,
                   outputs: cell.model.outputs.toJSON()}))"""


def typefaces(page: Page, among: str) -> set[str]:
    """Return the families in which Chromium draws the text of `page`, apart from code."""
    session = page.context.new_cdp_session(page)
    session.send("DOM.enable")
    session.send("CSS.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    asked = {"nodeId": root, "selector": f"{among} :not(:has({CODE}), {CODE}, :is({CODE}) *)"}
    nodes = session.send("DOM.querySelectorAll", asked)["nodeIds"]
    drawn = [session.send("CSS.getPlatformFontsForNode", {"nodeId": node}) for node in nodes]
    return {font["familyName"] for one in drawn for font in one["fonts"]}


class GuardedPage:
    def __init__(self, window: BrowserContext, *, allowed: str = "file:"):
        self.external: list[str] = []
        self.js_errors: list[str] = []
        self._allowed = (allowed, "data:", "blob:", "about:")
        self.page: Page = window.new_page()
        self.page.on("request", self._note_request)
        self.page.set_default_timeout(60_000)
        self.page.on("pageerror", lambda error: self.js_errors.append(str(error)))
        self.page.on("console", self._note_error)

    def close(self) -> None:
        self.page.close()

    def trouble(self) -> list[str]:
        """Return requests to other machines, and errors in the browser."""
        return self.external + self.js_errors

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith(self._allowed):
            self.external.append(request.url)

    def _note_error(self, message: Any) -> None:
        if message.type == "error":
            self.js_errors.append(message.text[:300])


class LabPage(GuardedPage):
    def __init__(self, window: BrowserContext, *, url: str):
        super().__init__(window, allowed=url.split("/lab")[0])
        self._url = url

    def close(self) -> None:
        """Close the window and end its kernels, so that they do not slow down the next test."""
        self.end_kernels()
        super().close()

    def run_cells(self, root: Path, name: str, *cells: str) -> None:
        """Write a notebook into the server's root, open it, run it, and check for no errors."""
        notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, cells)])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(notebook, root / "work" / f"{name}.ipynb")
        self.open(f"work/{name}.ipynb")
        self.run_all()
        assert self.errors() == []

    def open(self, notebook: str) -> None:
        """Open only this notebook in the window, by its path below the server's root."""
        # a separate workspace, because another test checks the first layout of the learner's
        url = self._url.replace("/workspaces/course", "").replace(FIRST, notebook)
        self.go(url.replace("?", "?reset&"))

    def go(self, url: str) -> None:
        """Open an address and wait for the kernel of its notebook."""
        self.page.goto(url, wait_until="domcontentloaded")
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")
        self.page.locator(_NOTEBOOK).wait_for()
        self.page.wait_for_function(_IDLE)

    def run_all(self, *, timeout_s: float = 300) -> None:
        """Run all cells up to the first error, and wait for the end."""
        self.page.evaluate(
            "() => { window.jupyterapp.commands.execute('notebook:run-all-cells')"
            ".finally(() => { window.courseRan = true }) }"
        )
        self.page.wait_for_function("() => window.courseRan", timeout=timeout_s * 1000)
        self.page.wait_for_function(_ALL_RAN)

    def cells(self) -> list[dict[str, Any]]:
        """Return the tags, execution count and outputs of each code cell."""
        cells: list[dict[str, Any]] = self.page.evaluate(_OUTPUTS)
        return cells

    def errors(self) -> list[str]:
        """Return the errors of cells that should not fail."""
        return [
            f"{output['ename']}: {output['evalue']}"
            for cell in self.cells()
            if "raises-exception" not in cell["tags"]
            for output in cell["outputs"]
            if output["output_type"] == "error"
        ]

    def texts(self) -> list[str]:
        """Return the plain text output of each code cell."""

        def text(output: Any) -> str:
            return str(output.get("text") or output.get("data", {}).get("text/plain", ""))

        return ["".join(map(text, cell["outputs"])) for cell in self.cells()]

    def switch_timelines(self) -> int:
        """Move a switch of every timeline, check its picture and sentence, and return the count."""
        radio = self.page.get_by_role("radio")
        with_switches = self.page.locator(".tl[data-view]").filter(has=radio)
        with_switches.first.wait_for()  # cells may have run before their widgets are drawn
        for timeline in with_switches.all():
            sentence = timeline.locator(".sentence")
            before, state = sentence.inner_text(), timeline.get_attribute("data-state") or ""
            timeline.get_by_role("radio", checked=False).first.check()
            expect(timeline).not_to_have_attribute("data-state", state)
            expect(sentence).not_to_have_text(before)
        return with_switches.count()

    def save(self) -> None:
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")

    def end_kernels(self) -> None:
        """Shut down every kernel, like closing JupyterLab."""
        self.page.evaluate("() => window.jupyterapp?.serviceManager.sessions.shutdownAll()")

    def trouble(self) -> list[str]:
        """Return the texts of toasts and dialogs too."""
        popups = self.page.locator(".Toastify__toast, .jp-Dialog").all_inner_texts()
        return super().trouble() + popups

    def set_dark(self, dark: bool) -> None:
        theme = "JupyterLab Dark" if dark else "JupyterLab Light"
        self.page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme
        )
        light = "false" if dark else "true"
        self.page.wait_for_selector(f"body[data-jp-theme-light={light}]", state="attached")
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")
