"""Installs an environment's packages with pip, and shows that it goes on: ``… EXTRAS``."""

from __future__ import annotations

import subprocess
import sys
import time


def install(extras: str) -> int:
    """Run pip; a line on standard error says at which package it is. Gives its exit code."""
    _say(f"installing the packages of '{extras}' into {sys.prefix} …\n")
    begun, seen, output = time.monotonic(), 0, []
    # Python compiles what is imported at its first use; of all that is installed that is little.
    options = ["--no-compile", "--disable-pip-version-check", "--progress-bar", "off"]
    command = [sys.executable, "-m", "pip", "install", *options, "--editable", f".[{extras}]"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        for line in pip.stdout:
            output.append(line)
            doing, _, name = line.strip().partition(" ")
            if doing == "Collecting":
                seen += 1
                _show(f"  {seen} packages found, now {name.partition(' ')[0]}")
            elif doing == "Installing" and name.startswith("collected"):
                _show(f"  {seen} packages downloaded, now unpacking them")
    _show("")
    if pip.returncode:
        _say("".join(output))
    else:
        _say(f"  done in {time.monotonic() - begun:.0f} s\n")
    return pip.returncode


def _show(text: str) -> None:
    """Replace the line that shows how it goes, where somebody looks at it."""
    if sys.stderr.isatty():
        _say(f"\r\x1b[K{text[:79]}")


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(install(sys.argv[1]))
