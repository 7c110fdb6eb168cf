#!/bin/sh
# The kernel's log is a file here; all else is as it is.
case " $* " in
    *" --dmesg "*) exec cat /run/b70-sim/kernel.log ;;
    *) exec /usr/bin/journalctl "$@" ;;
esac
