"""What the tests of this folder share: commands, a Debian to install into, and how they say what holds."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "deploy"
NAME = pathlib.Path(sys.argv[0]).name


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, text=True, **options)


def output(*command):
    return run(*command, stdout=subprocess.PIPE).stdout.strip()


def debian():
    """A minimal Debian 12 from where this machine's packages come, in a folder that is kept."""
    folder = WORK / "debian12"
    if (folder / "etc" / "apt" / "sources.list").is_file():
        return folder
    sources = sorted(set(output("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)",
                                "Created-By: Packages", "Origin: Debian").splitlines()))
    mirror = next((line.split()[0] for line in sources if line.split()[1] == "bookworm"), None)
    if mirror is None:
        skip("apt knows no mirror of Debian 12")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(WORK / "debootstrap.log", "w") as log:
        run("debootstrap", "--variant=minbase", "bookworm", folder, mirror, stdout=log)
    (folder / "etc" / "apt" / "sources.list").write_text("".join(f"deb {line}\n" for line in sources))
    return folder


def eventually(condition, seconds, what, every=0.02):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if condition():
                return
        time.sleep(every)
    sys.exit(f"{NAME}: not within {seconds} s: {what}")


def expect(condition, what):
    if not condition:
        sys.exit(f"{NAME}: {what}")
    print(f"ok: {what}")


def skip(why):
    """Ends as a test that was skipped, for CTest."""
    print(f"{NAME}: skipped: {why}")
    sys.exit(77)


def require_own_roots():
    """Skips where this user cannot make root folders and namespaces of its own."""
    mounts = ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "proc", "proc", "/proc"]
    if os.geteuid() != 0 or subprocess.run(mounts, capture_output=True).returncode != 0:
        skip("it needs root, for chroot and namespaces")


def wheel(name, version):
    """A package of PyPI, to be read: schemas that are published in it, without what it depends on."""
    folder = WORK / "schemas"
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(folder.glob(pattern)):
        run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, f"{name}=={version}")
    return zipfile.ZipFile(next(folder.glob(pattern)))
