"""What runs inside: ``sh`` around a command, and file calls with the sandbox's own view of its files.

/tmp is new for every command. ``AROUND`` gives a command the /tmp that the one before it left: what lay there waits in
/home/.tmp, is linked into /tmp before the command and taken back after it, within the grace of a timeout too.
"""

from __future__ import annotations

#: Arguments: working directory, a file for standard input or "", then the command.
AROUND = """
kept=/home/.tmp seen=/dev/shm/.kept
bring() {
    for entry; do
        shift
        if [ -e "$entry" ] || [ -L "$entry" ]; then set -- "$@" "$entry"; fi
    done
    if [ $# != 0 ]; then mkdir "$seen" && ln -s -- "$@" "$seen/" && ln -s -- "$@" /tmp/; fi
}
is_link_to() { [ -L "$1" ] && [ "$(readlink -- "$1")" = "$2" ]; }
settle() {
    if is_link_to "/tmp/$1" "$kept/$1"; then rm -- "/tmp/$1"; return; fi
    for entry in /tmp/* /tmp/.[!.]* /tmp/..?*; do
        if is_link_to "$entry" "$kept/$1"; then
            rm -- "$entry" && mv -f -- "$kept/$1" "$entry"
            return
        fi
    done
    rm -rf -- "$kept/$1"
}
keep() {
    for entry; do
        if [ -e "$entry" ] || [ -L "$entry" ]; then
            [ -d "$kept" ] || mkdir -- "$kept"
            mv -f -- "$entry" "$kept/"
        fi
    done
}
where=$1 input=$2
shift 2
if [ -d "$kept" ]; then bring "$kept"/* "$kept"/.[!.]* "$kept"/..?*; fi
if [ -n "$input" ]; then exec < "$input"; rm -f -- "$input"; fi
trap : TERM
( cd -- "$where" && exec "$@" )
code=$?
exec < /dev/null > /dev/null 2>&1
if [ -d "$seen" ]; then
    for mark in "$seen"/* "$seen"/.[!.]* "$seen"/..?*; do
        if [ -L "$mark" ]; then settle "${mark##*/}"; fi
    done
fi
keep /tmp/* /tmp/.[!.]* /tmp/..?*
exit $code
"""

#: The exit code of READ when the content lies in the other file.
STAGED = 100

#: Arguments: path, most bytes for standard output, a file for what is larger, most bytes at all. Exits with an errno.
READ = """
[ -d "$1" ] && exit 21
[ -e "$1" ] || { above=${1%/*}/; [ -d "$above" ] && [ ! -x "$above" ] && exit 13; exit 2; }
[ -f "$1" ] || exit 22
[ -r "$1" ] || exit 13
size=$(stat -L -c %s -- "$1") || exit 5
[ "$size" -le "$4" ] || exit 27
[ "$size" -le "$2" ] && exec cat -- "$1"
cat -- "$1" > "$3" && exit 100
exit 5
"""

#: Argument: path; the content comes from standard input. In place: links are followed, modes stay. Exits with an errno.
WRITE = """
[ -d "$1" ] && exit 21
above=${1%/*}/
said=$(mkdir -p -- "$above" 2>&1) || case $said in *"ot a directory"* | *xists*) exit 20 ;; *) exit 13 ;; esac
if [ -e "$1" ]; then [ -w "$1" ] || exit 13; else [ -w "$above" ] || exit 13; fi
cat > "$1" || exit 5
"""
