"""The environment of libraries that scripts/compat makes, whose interpreter is TEST_COMPAT_PYTHON."""

import os
import pathlib
import subprocess

PYTHON = os.environ.get("TEST_COMPAT_PYTHON", "")
WHY_NOT = "scripts/compat has not made TEST_COMPAT_PYTHON"


def run(script, *arguments, text=None):
    """What a script beside this one prints there."""
    path = pathlib.Path(__file__).with_name(script)
    done = subprocess.run([PYTHON, "-W", "ignore", path, *arguments], input=text, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout
