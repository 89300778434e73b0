#!/bin/sh
# Print the path of a Python that can run mxamp, or explain what to do and fail.
#
#   sh tools/find_python.sh full ENVIRONMENT    Python 3.8 to 3.11, which MXNet 1.9.1 needs
#   sh tools/find_python.sh core ENVIRONMENT    Python 3.8 to 3.13, for the part that needs no MXNet
#   sh tools/find_python.sh peers ENVIRONMENT   Python 3.11, which the other converters are pinned for
#
# $PYTHON, where set, is taken or refused, never replaced by another version. Otherwise the Python that ENVIRONMENT
# was made with is kept, and failing that the first that works is taken: on PATH, then among pyenv's.

set -eu

kind=$1
environment=$2
pyenv=${PYENV_ROOT:-${HOME:-}/.pyenv}/versions
case $kind in
    # The best tested first.
    full) versions="3.11 3.10 3.9 3.8" ;;
    # The ones that MXNet does not run on first: they are what the core tests are for.
    core) versions="3.13 3.12 3.11 3.10 3.9 3.8" ;;
    peers) versions="3.11" ;;
    *) echo "find_python.sh: the first argument is full, core or peers, not '$kind'." >&2; exit 2 ;;
esac

# A name on PATH may not run (pyenv puts one there for every version it knows), and Debian's Python cannot make an
# environment before python3-venv is installed: so each candidate is asked, and says its version and its full path.
question='
import sys
try:
    import ensurepip, venv
    able = "able"
except ImportError:
    able = "unable"
print("%d.%d" % sys.version_info[:2], able, sys.executable)
'

unable=""
# ask CANDIDATE: sets $version, $able and $path; fails where the candidate does not run.
ask() {
    answer=$("$1" -c "$question" 2>/dev/null) || return 1
    version=${answer%% *}
    answer=${answer#* }
    able=${answer%% *}
    path=${answer#* }
    [ -n "$path" ]
}

# suits: whether the version that was asked last is one that is wanted.
suits() {
    for wanted in $versions; do
        [ "$version" = "$wanted" ] && return 0
    done
    return 1
}

# consider CANDIDATE VERSION: prints the path and ends the search if the candidate is that version and works.
consider() {
    ask "$1" || return 0
    [ "$version" = "$2" ] || return 0
    if [ "$able" = able ]; then
        echo "$path"
        exit 0
    fi
    unable="$unable $path"
}

# ask_for NAME: like ask, but python3.12 is also looked for among pyenv's versions.
ask_for() {
    ask "$1" && return 0
    case $1 in
        python[0-9].[0-9]*)
            for candidate in "$pyenv/${1#python}".*/bin/python; do
                ask "$candidate" && return 0
            done
            ;;
    esac
    return 1
}

if [ -n "${PYTHON:-}" ]; then
    if ! ask_for "$PYTHON"; then
        echo "PYTHON=$PYTHON does not run. Give the path of a Python interpreter, or leave PYTHON out." >&2
        exit 1
    fi
    if ! suits; then
        if [ "$kind" = full ]; then
            echo "PYTHON=$PYTHON is Python $version, and MXNet 1.9.1 runs on Python 3.8 to 3.11 only." >&2
            echo "Leave PYTHON out, or give one of those. The part of mxamp that needs no MXNet is tested on" >&2
            echo "Python 3.8 to 3.13: make test-core PYTHON=$PYTHON" >&2
        else
            echo "PYTHON=$PYTHON is Python $version, and mxamp needs Python 3.8 to 3.13." >&2
        fi
        exit 1
    fi
    if [ "$able" = unable ]; then
        echo "$path cannot make environments: its modules venv and ensurepip are not installed." >&2
        echo "On Debian and Ubuntu: sudo apt install python$version-venv" >&2
        exit 1
    fi
    echo "$path"
    exit 0
fi

if [ -r "$environment/pyvenv.cfg" ]; then
    home=$(sed -n 's/^home *= *//p' "$environment/pyvenv.cfg")
    version=$(sed -n 's/^version *= *\([0-9]*\.[0-9]*\).*/\1/p' "$environment/pyvenv.cfg")
    if suits; then
        consider "$home/python$version" "$version"
    fi
fi

for wanted in $versions; do
    consider "python$wanted" "$wanted"
    for candidate in "$pyenv/$wanted".*/bin/python; do
        [ -x "$candidate" ] && consider "$candidate" "$wanted"
    done
done
# Some systems have no python3.11 beside their python3.
for wanted in $versions; do
    consider python3 "$wanted"
    consider python "$wanted"
done

{
    if [ "$kind" = full ]; then
        echo "No suitable Python was found: MXNet 1.9.1 runs on Python 3.8 to 3.11 (best tested: 3.11)."
    else
        echo "No suitable Python was found: mxamp needs Python 3.8 to 3.13."
    fi
    echo "Looked for: $versions, on PATH and in $pyenv."
    if [ -n "$unable" ]; then
        echo "Found, but without the modules venv and ensurepip, so that they cannot make an environment:"
        for path in $unable; do
            echo "    $path"
        done
        echo "On Debian and Ubuntu, 'sudo apt install python3.11-venv' (with that Python's version) adds them."
    fi
    echo "Any one of these gives you one:"
    echo "    Debian 12, Ubuntu 22.04     sudo apt install python3 python3-venv"
    echo "    Fedora                      sudo dnf install python3.11"
    echo "    macOS with Homebrew         brew install python@3.11"
    echo "    any system with pyenv       pyenv install 3.11"
    echo "    any system with conda       conda create -p ./python311 python=3.11"
    echo "If you have one elsewhere, name it:  make test PYTHON=/path/to/python3.11"
} >&2
exit 1
