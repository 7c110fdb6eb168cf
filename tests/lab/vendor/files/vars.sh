# A fixture in the place of the script that a oneAPI compiler ships. Like that one it must be sourced, finds its own
# directory, greets, and puts its directories in front of what is there.
_vars_say() { printf '%s\n' ":: $*" >&2; }

if [ -n "${BASH_VERSION:-}" ]; then
    if [ "${BASH_SOURCE[0]}" = "$0" ]; then
        _vars_say "ERROR: this script must be sourced"
        exit 255
    fi
    _vars_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
else
    _vars_say "ERROR: only bash is supported by this fixture"
    return 255
fi

# VALUE LIST: the list with the value in front, without a trailing colon.
_vars_front() { printf '%s' "$1${2:+:$2}"; }

CMPLR_ROOT=$(dirname "$_vars_here"); export CMPLR_ROOT
DIAGUTIL_PATH=$(_vars_front "$CMPLR_ROOT/etc/compiler/sys_check/sys_check.sh" "${DIAGUTIL_PATH:-}"); export DIAGUTIL_PATH
LIBRARY_PATH=$(_vars_front "$CMPLR_ROOT/lib" "${LIBRARY_PATH:-}"); export LIBRARY_PATH
LD_LIBRARY_PATH=$(_vars_front "$CMPLR_ROOT/opt/compiler/lib:$CMPLR_ROOT/lib" "${LD_LIBRARY_PATH:-}"); export LD_LIBRARY_PATH
CMAKE_PREFIX_PATH=$(_vars_front "$CMPLR_ROOT" "${CMAKE_PREFIX_PATH:-}"); export CMAKE_PREFIX_PATH
NLSPATH=$(_vars_front "$CMPLR_ROOT/lib/compiler/locale/%l_%t/%N" "${NLSPATH:-}"); export NLSPATH
OCL_ICD_FILENAMES=$(_vars_front "$CMPLR_ROOT/lib/libintelocl.so" "${OCL_ICD_FILENAMES:-}"); export OCL_ICD_FILENAMES
PATH=$(_vars_front "$CMPLR_ROOT/bin" "$PATH"); export PATH
MANPATH=$(_vars_front "$CMPLR_ROOT/share/man" "${MANPATH:-}"); export MANPATH

_vars_say "environment of $(basename "$CMPLR_ROOT") (fixture)"
unset -f _vars_say _vars_front
unset _vars_here
