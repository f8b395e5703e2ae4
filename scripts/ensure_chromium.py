"""Have a Chromium for the browser tests: use the one that is there, or install Debian's where we may.

Without one the browser tests are skipped, each with a line that says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def main() -> None:
    """Install Chromium if it is missing and this user may install packages."""
    if any(shutil.which(name) for name in BROWSERS):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print("setup: no Chromium here, so the browser tests will be skipped", flush=True)
        return
    print("setup: installing chromium for the browser tests (once)", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--no-install-recommends", "chromium"]):
        subprocess.run(["apt-get", "-qq", "-y", *arguments], env=environment, check=False)
    if not any(shutil.which(name) for name in BROWSERS):
        print("setup: chromium could not be installed, so the browser tests will be skipped", flush=True)


if __name__ == "__main__":
    main()
