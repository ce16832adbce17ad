#!/bin/sh
# Makes the virtual environment with the pinned packages. Usage: setup.sh PYTHON VENV
set -eu
python=$1
venv=$2
# The system's certificates, as pip takes them: where a company's own authority signs, uv would know none of it.
export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-1}"

if ! command -v "$python" >/dev/null 2>&1; then
	echo "setup: there is no '$python' here; install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3" >&2
	exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
	echo "setup: Python 3.11 or newer is needed, $python is $("$python" -V 2>&1); try: make PYTHON=python3.12" >&2
	exit 1
fi

echo "setting up $venv (a minute the first time)"
if [ ! -x "$venv/bin/python" ]; then
	if "$python" -c 'import ensurepip' 2>/dev/null; then
		"$python" -m venv "$venv"
	elif command -v uv >/dev/null 2>&1; then
		echo "setup: Python's venv module is not complete here; using uv instead"
		uv venv -q --seed --python "$python" "$venv"
	else
		minor=$("$python" -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')
		echo "setup: Python's venv module is not complete here. On Debian or Ubuntu: apt install python$minor-venv" >&2
		echo "       (or install uv, which is used when it is there), then run make again" >&2
		exit 1
	fi
fi

if "$venv/bin/python" -m uv --version >/dev/null 2>&1; then :; else
	"$venv/bin/python" -m pip install -q --disable-pip-version-check "$(grep '^uv==' requirements.lock)"
fi
"$venv/bin/python" -m uv pip install -q --python "$venv/bin/python" -r requirements.lock
"$venv/bin/python" -m uv pip install -q --python "$venv/bin/python" --no-deps -e .
touch "$venv/.ready"
