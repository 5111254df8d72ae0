"""Puts ONNX's backend test cases into a folder and prints where they are.

They come from ../shared/conformance beside the checkout (every release's cases) or, where that does
not exist, from the newest `onnx` wheel that carries them. Usage: data.py FOLDER
"""

import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

WHEEL = "onnx==1.22.0"  # later wheels carry no data
ARCHIVE = pathlib.Path(__file__).resolve().parents[3] / "shared" / "conformance" / "onnx-backend-tests.tar.xz"


def from_archive(folder):
    # Python 3.11.2, Debian 12's first, has no filters.
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, **safely)


def from_wheel(folder):
    prefix = "onnx/backend/test/data/"
    with tempfile.TemporaryDirectory() as download:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                        "--dest", download, WHEEL], check=True)
        wheel = zipfile.ZipFile(next(pathlib.Path(download).glob("*.whl")))
        for name in wheel.namelist():
            if not name.startswith(prefix) or name.endswith("/"):
                continue
            part = name[len(prefix):]
            # The archive keeps the newest node cases in node/current.
            target = folder / (part.replace("node/", "node/current/", 1) if part.startswith("node/") else part)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(wheel.read(name))


def main():
    base = pathlib.Path(sys.argv[1])
    folder = base / ("every_release" if ARCHIVE.exists() else "wheel")
    done = folder / "complete"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (from_archive if ARCHIVE.exists() else from_wheel)(folder)
        done.touch()
    print(folder)


if __name__ == "__main__":
    main()
