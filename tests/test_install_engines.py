"""What `make test` says before it installs and runs anything."""

from __future__ import annotations

import sys

import pytest

import install_engines
from install_engines import Engine
from servers import EngineMissingError


def absent():
    raise EngineMissingError("no such server")


SERVERS = (
    Engine("Here", str, "apt", ("here-server",)),
    Engine("Wanted", absent, "apt", ("wanted-server", "wanted-tools")),
    Engine("Small", absent, "pip", ("small",)),
)


@pytest.fixture
def installed(monkeypatch):
    """Three servers, two of which are missing; gives what is installed, which nothing is."""
    packages = []
    monkeypatch.setattr(install_engines, "ENGINES", SERVERS)
    monkeypatch.setattr(
        install_engines, "INSTALLERS", {"apt": packages.extend, "pip": packages.extend}
    )
    monkeypatch.setattr(install_engines, "_is_root", lambda: True)
    monkeypatch.setattr(install_engines.shutil, "which", lambda program: f"/bin/{program}")
    monkeypatch.delenv("AGENT_MEMORY_NO_APT", raising=False)
    monkeypatch.setenv("CI", "1")
    return packages


def test_the_plan_says_what_is_found_and_what_will_be_installed_where(installed):
    """And how to keep the system as it is; planning installs nothing."""
    lines = list(install_engines.plan())
    assert "  Here: found" in lines
    assert (
        "  Wanted: will be installed SYSTEM-WIDE, with apt: wanted-server, wanted-tools" in lines
    )
    assert "  Small: will be installed into the environment: small" in lines
    assert "To have nothing installed system-wide: AGENT_MEMORY_NO_APT=1 make test" in lines
    assert "minutes" in lines[0]
    assert installed == []


def test_without_apt_the_plan_says_what_is_skipped_and_why(installed, monkeypatch):
    """Nothing is installed system-wide then."""
    monkeypatch.setenv("AGENT_MEMORY_NO_APT", "1")
    lines = list(install_engines.plan())
    assert "  Wanted: not found, its tests will be SKIPPED (AGENT_MEMORY_NO_APT=1)" in lines
    assert not any("system-wide" in line.lower() for line in lines)
    install_engines.install()
    assert installed == ["small"]


def test_who_is_not_root_reads_what_root_would_run(installed, monkeypatch):
    """The command is there to be copied."""
    monkeypatch.setattr(install_engines, "_is_root", lambda: False)
    (line,) = [line for line in install_engines.plan() if "Wanted" in line]
    assert "apt-get install wanted-server wanted-tools" in line


def test_what_is_installed_system_wide_is_said_before(installed, monkeypatch, capsys):
    """With the way to avoid it, before the first package."""
    before = []
    monkeypatch.setitem(
        install_engines.INSTALLERS, "apt", lambda _packages: before.append(capsys.readouterr().err)
    )
    install_engines.install()
    assert "SYSTEM-WIDE, with apt: wanted-server, wanted-tools" in before[0]
    assert "AGENT_MEMORY_NO_APT=1" in before[0]


def test_a_person_has_time_to_stop_it(installed, monkeypatch, capsys):
    """Whoever sits at a terminal, and not a machine."""
    slept = []
    monkeypatch.setattr(install_engines.time, "sleep", slept.append)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    install_engines.install()
    assert slept == []
    monkeypatch.delenv("CI")
    install_engines.install()
    assert slept == [5]
    assert "Ctrl-C" in capsys.readouterr().err


def test_what_cannot_be_installed_ends_nothing(installed, monkeypatch, capsys):
    """The tests skip it later, aloud."""

    def fail(_packages):
        raise OSError("no network")

    monkeypatch.setitem(install_engines.INSTALLERS, "apt", fail)
    install_engines.install()
    assert "that failed (no network); its tests will be skipped" in capsys.readouterr().err
    assert installed == ["small"]
