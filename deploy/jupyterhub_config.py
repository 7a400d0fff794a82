"""JupyterHub for a class on one machine. README.md describes how to start it.

Environment variables:
    COURSE_PASSWORD: The password of the class, at least 8 characters.
    COURSE_LEARNERS: How many learners may work at the same time (default: 20).
    COURSE_WALL: The address of a wall that all notebooks join (default: none).
    COURSE_SPAWNER: "docker" (default) gives each learner a container with limits. "local" starts
        plain processes without limits, to try the hub.
    COURSE_IMAGE: The image of the containers. compose.yml sets it.
    COURSE_DATA: For "local", the folder of the data.
"""

import os
import shutil
import sys
from pathlib import Path

GB = 1e9
# The row of one learner in the memory table of slides/INSTRUCTOR.md, and the Jupyter server.
DISK = 2 * GB
MEMORY, SHM = 1.92 * GB + 0.1 * GB, 0.07 * GB
FIRST = "work/00_start_here.ipynb"
LEARNERS = int(os.environ.get("COURSE_LEARNERS", "20"))
# Edited notebooks stay as they are. Unedited ones are updated. The window is that of `course lab`.
START = f"""
course hand-out "$COURSE_HOME/work" && cd "$COURSE_HOME" && python -c '
from pathlib import Path
from course_utils.command import lab
lab.prepare(Path(".jupyter"), "{FIRST}")' || exit
export JUPYTER_CONFIG_DIR="$PWD/.jupyter/config"
export JUPYTERLAB_WORKSPACES_DIR="$PWD/.jupyter/workspaces"
exec jupyterhub-singleuser "$@"
"""


def setting(name: str) -> str:
    """Return an environment variable that the hub needs."""
    return os.environ.get(name) or sys.exit(f"{name} is not set. README.md explains it.")


def warn_if_short(name: str, needed: float, there: float) -> None:
    """Print a warning with the number of learners that fit, if not all do."""
    if needed * LEARNERS > there:
        print(
            f"{LEARNERS} learners need {needed * LEARNERS / GB:.1f} GB of {name}, but this machine "
            f"has {there / GB:.1f} GB. Set COURSE_LEARNERS={int(there / needed)}, or use a larger "
            "machine.",
            file=sys.stderr,
        )


os.umask(0o077)  # the files of the hub and of its processes are for their owner only
c = get_config()  # type: ignore[name-defined]  # noqa: F821
warn_if_short("memory", MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

# Any name and one password: enough for a class in a closed network. See README.md for others.
c.JupyterHub.authenticator_class = "shared-password"
c.SharedPasswordAuthenticator.user_password = setting("COURSE_PASSWORD")
c.Authenticator.allow_all = True
c.Authenticator.username_pattern = r"\w[\w -]*\Z"  # a path or a hidden folder is no name

c.JupyterHub.active_server_limit = LEARNERS
c.JupyterHub.concurrent_spawn_limit = 10
c.Spawner.cmd = ["sh", "-c", START, "start"]
c.Spawner.default_url = f"/lab/workspaces/course/tree/{FIRST}"
c.Spawner.start_timeout = c.Spawner.http_timeout = 120  # ten may start at the same time
c.Spawner.environment = {"COURSE_SIZE": "S", "JUPYTER_PREFER_ENV_PATH": "1"}
c.Spawner.environment["COURSE_WALL"] = os.environ.get("COURSE_WALL", "")
c.Spawner.mem_limit, c.Spawner.cpu_limit = "3G", 2.0

if os.environ.get("COURSE_SPAWNER") == "local":
    warn_if_short("/dev/shm", SHM, shutil.disk_usage("/dev/shm").free)
    homes = Path("homes").resolve()
    c.JupyterHub.spawner_class = "simple"
    c.JupyterHub.bind_url = "http://127.0.0.1:8000"
    c.SimpleLocalProcessSpawner.home_dir_template = str(homes / "{username}")
    c.Spawner.environment |= {
        "COURSE_HOME": lambda spawner: str(homes / spawner.user.name / "course"),
        "COURSE_DATA": str(Path(setting("COURSE_DATA")).resolve()),
    }
else:
    c.JupyterHub.spawner_class = "docker"
    c.JupyterHub.bind_url, c.JupyterHub.hub_ip = "http://:8000", "0.0.0.0"
    c.JupyterHub.hub_connect_ip = "hub"  # its name in compose.yml
    c.DockerSpawner.image = setting("COURSE_IMAGE")
    c.DockerSpawner.pull_policy = "never"  # `compose build` made it; the name may be somebody's
    c.DockerSpawner.network_name = "fast-data-loaders"
    c.DockerSpawner.name_template = "course-learner-{username}"
    c.DockerSpawner.volumes = {"course-learner-{username}": "/learner"}
    c.DockerSpawner.remove = True  # the next login uses the newest image
    warn_if_short("disk", DISK, shutil.disk_usage(".").free)  # a volume, as those of the learners
    c.DockerSpawner.extra_host_config = {
        # An empty /dev/shm takes no memory. Its files count toward the limit of the container.
        **{"shm_size": "2g", "init": True},
        **{"cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]},
        "pids_limit": 2048,  # counts threads, and each worker has some for each core
        "ulimits": [{"Name": "fsize", "Soft": 4 << 30, "Hard": 4 << 30}],  # bytes of one file
    }

# Stop servers that nobody has used for an hour. The files stay.
cull = [sys.executable, "-m", "jupyterhub_idle_culler", "--timeout=3600"]
scopes = ["list:users", "read:users:activity", "read:servers", "delete:servers"]
c.JupyterHub.services = [{"name": "cull", "command": cull}]
c.JupyterHub.load_roles = [{"name": "cull", "scopes": scopes, "services": ["cull"]}]
