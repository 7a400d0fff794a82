"""Keep all that the course's JupyterLab remembers in one folder, and make it quiet and offline."""

import json
from pathlib import Path

_DEFAULTS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "@jupyterlab/apputils-extension:themes": {"theme": "JupyterLab Light", "adaptive-theme": False},
    "@jupyterlab/notebook-extension:tracker": {
        "windowingMode": "none",
        "autoStartDefaultKernel": True,
    },
    # A notebook opened again tomorrow shows its timelines, whose kernel has long gone.
    "@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True},
}
# The tool that builds the notebooks would offer to pair the learner's with files beside them.
_PAGE = {"disabledExtensions": {"jupyterlab-jupytext": True}}
_SERVER = {"ServerApp": {"jpserver_extensions": {"jupyterlab_jupytext": False}}}


def folders(state: Path) -> dict[str, Path]:
    """Return the folders below `state` by the name of the variable that JupyterLab reads."""
    return {
        "JUPYTER_CONFIG_DIR": state / "config",
        "JUPYTER_DATA_DIR": state / "data",
        "JUPYTER_RUNTIME_DIR": state / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": state / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": state / "workspaces",
        "IPYTHONDIR": state / "ipython",
    }


def environment(state: Path) -> dict[str, str]:
    """Return the variables that keep JupyterLab and its kernels within `state`."""
    kept = {name: str(folder) for name, folder in folders(state).items()}
    # The kernel is this Python's, also where a user-wide kernel goes by the same name.
    return kept | {"JUPYTER_PREFER_ENV_PATH": "1"}


def prepare(state: Path, notebook: str) -> None:
    """Write the settings, and at the first time a window that shows `notebook`."""
    from jupyterlab_server.workspaces_handler import WorkspacesManager

    kept = folders(state)
    for folder in kept.values():
        folder.mkdir(parents=True, exist_ok=True)
    for name, settings in (
        ("labconfig/default_setting_overrides.json", _DEFAULTS),
        ("labconfig/page_config.json", _PAGE),
        ("jupyter_server_config.json", _SERVER),
    ):
        file = kept["JUPYTER_CONFIG_DIR"] / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(settings, indent=1) + "\n", "utf-8")
    if not any(kept["JUPYTERLAB_WORKSPACES_DIR"].iterdir()):
        workspaces = WorkspacesManager(str(kept["JUPYTERLAB_WORKSPACES_DIR"]))
        workspaces.save("course", json.dumps(_workspace(notebook)))


def _workspace(notebook: str) -> dict[str, object]:
    """Lay out a first window: the notebook, with its table of contents at the left."""
    shown = f"notebook:{notebook}"
    return {
        "metadata": {"id": "course"},
        "data": {
            "layout-restorer:data": {
                "main": {
                    "dock": {"type": "tab-area", "currentIndex": 0, "widgets": [shown]},
                    "current": shown,
                },
                "left": {
                    "collapsed": False,
                    "visible": True,
                    "current": "@jupyterlab/toc:plugin",
                    "widgets": ["filebrowser", "running-sessions", "@jupyterlab/toc:plugin"],
                },
                "right": {"collapsed": True, "visible": True, "widgets": []},
                "relativeSizes": [0.2, 0.8, 0],
            },
            shown: {"data": {"path": notebook, "factory": "Notebook"}},
        },
    }
