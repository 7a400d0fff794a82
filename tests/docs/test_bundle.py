from course_utils.paths import REPO
from docs.bundle import SYSTEMS, pins_for
from docs.install import requirements

LOCK = """\
pure==1.0
native==1.0
appnope==1.0 ; sys_platform == 'darwin'
colorama==1.0 ; os_name == 'nt'
old==1.0 ; python_full_version < '3.11.5'
"""


def test_pins_follow_markers_of_the_other_system() -> None:
    everywhere = ["pure==1.0", "native==1.0"]
    assert pins_for(LOCK, "linux", "3.11.4") == [*everywhere, "old==1.0"]
    assert pins_for(LOCK, "macos", "3.11.5") == [*everywhere, "appnope==1.0"]
    assert pins_for(LOCK, "windows", "3.12.0") == [*everywhere, "colorama==1.0"]


def test_course_lock_contains_torch_for_each_system() -> None:
    for system in SYSTEMS:
        lock = (REPO / "requirements.lock").read_text("utf-8")
        pins = pins_for(requirements(lock, cpu=True), system, "3.12.0")
        assert any(pin.startswith("torch==") for pin in pins), system
        cuda = "nvidia", "cuda", "triton", "pytest"
        assert not any(pin.startswith(cuda) for pin in pins), system
