#!/bin/bash
# shellcheck disable=SC2059,SC2016 # data is written as printf formats, scripts as they are
# Exit codes, messages and files of the braid command. Usage: tests/cli.sh path/to/braid
set -u
braid=$(realpath "${1:?usage: tests/cli.sh path/to/braid}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
export BRAID_CACHE=$work/cache
count=0 bad=0

# expect CODE STDERR-PATTERN COMMAND…: the pattern is a glob for all of stderr; stdout goes to ./out.
expect() {
    local code=$1 pattern=$2 got text
    shift 2
    "$@" >out 2>err
    got=$?
    text=$(cat err)
    count=$((count + 1))
    # shellcheck disable=SC2053
    if [[ $got -ne $code || $text != $pattern ]]; then
        bad=$((bad + 1))
        printf 'FAIL: %s\n  exit code %d, expected %d; stderr: %s\n  expected: %s\n' \
            "${*/#$braid/braid}" "$got" "$code" "$text" "$pattern"
    fi
}
# check DESCRIPTION COMMAND…: the command succeeds.
check() {
    local what=$1
    shift
    count=$((count + 1))
    "$@" >/dev/null 2>&1 && return
    bad=$((bad + 1))
    printf 'FAIL: %s\n' "$what"
    [[ -s out ]] && head -n 5 out
}
no() { ! "$@"; }

# npy NAME DESCR SHAPE DATA: a .npy file; DATA is a printf format.
npy() {
    local header="{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"
    {
        printf '\x93NUMPY\x01\x00'
        printf "\\$(printf %03o ${#header})\\000"
        printf '%s' "$header"
        printf "$4"
    } >"$1"
}
one='\000\000\200\077' two='\000\000\000\100' three='\000\000\100\100' four='\000\000\200\100'

# add.onnx: y = x + w, x float32[n,2], w float32[2]
printf '\010\010\072U\012\023\012\001x\012\001w\022\001y\032\003add\042\003Add\022\001gZ\024\012\001x\022\017\012\015\010\001\022\011\012\003\022\001n\012\002\010\002Z\017\012\001w\022\012\012\010\010\001\022\004\012\002\010\002b\024\012\001y\022\017\012\015\010\001\022\011\012\003\022\001n\012\002\010\002B\004\012\000\020\022' >add.onnx
# step.onnx: y = x + w, all of float32[2]
printf '\010\010\072K\012\023\012\001x\012\001w\022\001y\032\003add\042\003Add\022\001gZ\017\012\001x\022\012\012\010\010\001\022\004\012\002\010\002Z\017\012\001w\022\012\012\010\010\001\022\004\012\002\010\002b\017\012\001y\022\012\012\010\010\001\022\004\012\002\010\002B\004\012\000\020\022' >step.onnx
# open.onnx: the same of float32[n,2]
printf '\010\010\072Z\012\023\012\001x\012\001w\022\001y\032\003add\042\003Add\022\001gZ\024\012\001x\022\017\012\015\010\001\022\011\012\003\022\001n\012\002\010\002Z\024\012\001w\022\017\012\015\010\001\022\011\012\003\022\001n\012\002\010\002b\024\012\001y\022\017\012\015\010\001\022\011\012\003\022\001n\012\002\010\002B\004\012\000\020\022' >open.onnx
# pick.onnx: y = x[i], x float32[3], i int64
printf '\010\010\072G\012\027\012\001x\012\001i\022\001y\032\004pick\042\006Gather\022\001gZ\017\012\001x\022\012\012\010\010\001\022\004\012\002\010\003Z\013\012\001i\022\006\012\004\010\007\022\000b\013\012\001y\022\006\012\004\010\001\022\000B\004\012\000\020\022' >pick.onnx
# pair.onnx: s = [x, x], x float32[2]
printf '\010\010\072G\012\042\012\001x\012\001x\022\001s\032\004pair\042\021SequenceConstruct\022\001gZ\017\012\001x\022\012\012\010\010\001\022\004\012\002\010\002b\015\012\001s\022\010\042\006\012\004\012\002\010\001B\004\012\000\020\022' >pair.onnx
# anyrank.onnx: y = |x|, x of any rank
printf '\010\010:+\012\020\012\001x\022\001y\032\003abs\042\003Abs\022\001gZ\011\012\001x\022\004\012\002\010\001b\011\012\001y\022\004\012\002\010\001B\004\012\000\020\022' >anyrank.onnx
# odd.onnx: like add.onnx with an operator that nobody knows
sed 's/\x03Add/\x03Odd/' add.onnx >odd.onnx
echo 'not a model' >junk.onnx
npy x.npy '<f4' '1, 2' "$one$two"
npy w.npy '<f4' '2,' "$three$four"
npy x3.npy '<f4' '3,' "$one$two$three"
npy i1.npy '<i8' '' '\001\000\000\000\000\000\000\000'
npy i9.npy '<i8' '' '\011\000\000\000\000\000\000\000'
npy big.npy '>f4' '1, 2' "$one$two"
npy short.npy '<f4' '5, 2' "$one$two"
npy double.npy '<f8' '1,' "$one$two"

# ---- usage
expect 2 'braid: no command is given*' "$braid"
expect 2 "braid: unknown command 'fly'*" "$braid" fly
expect 2 "braid: unknown option '--fast'*" "$braid" run --fast add.onnx
expect 2 "braid: unknown option '--json'*" "$braid" run --json add.onnx
expect 2 'braid: run needs MODEL.onnx|FILE.so*' "$braid" run
expect 2 "braid: run: unexpected argument 'b'*" "$braid" run add.onnx b
expect 2 'braid: option -i needs a value*' "$braid" run add.onnx -i
expect 2 "braid: option -i: 'x' is not a valid NAME=FILE*" "$braid" run add.onnx -i x
expect 2 "braid: option --threads: '0' is not a valid N*" "$braid" run add.onnx --threads 0
expect 2 "braid: option --max-memory: '0' is not a valid BYTES*" "$braid" run add.onnx --max-memory 0
expect 2 "braid: option --max-memory: '9Q' is not a valid BYTES*" "$braid" run add.onnx --max-memory 9Q
expect 2 "braid: option --max-memory: '9999999T' is not a valid BYTES*" "$braid" run add.onnx --max-memory 9999999T
expect 2 "braid: option --threads: '2x' is not a valid N*" "$braid" run add.onnx --threads=2x
expect 2 "braid: option --rtol: '-1' is not a valid R*" "$braid" test --rtol -1 .
for shape in x= =2 x=1, x=,1 x=1,,2 x=[1 x=1] x=-1 x=n x 'x=[1]2' x=1,1,1,1,1,1,1,1,1,1,1,1,1; do
    expect 2 "braid: option --input-shape: '*' is not a valid NAME=1,3,?*" "$braid" run add.onnx --input-shape "$shape"
done
expect 2 "braid: input 'w' is declared of rank 1, not 2*" "$braid" run add.onnx --input-shape w=2,?
expect 2 "braid: input 'w': axis 0 is declared of size 2, not 3*" "$braid" explain add.onnx --input-shape w=3
expect 2 "braid: a shape is given for 'z', but there is no such input*" "$braid" compile add.onnx --input-shape z=[] -o no
expect 2 "braid: unknown target 'abacus'*" "$braid" run add.onnx --target abacus
expect 2 "braid: unknown target 'abacus'; there are interp, cpu, *" "$braid" test --target abacus .
expect 2 "braid: unknown target 'cuda:sm_1'; there are cuda:sm_75, *" "$braid" compile --target cuda:sm_1 add.onnx
expect 2 "braid: target 'interp' makes no library*" "$braid" compile add.onnx --target interp
expect 0 '' "$braid" --help
check 'help lists the commands' grep -q 'compile  *MODEL.onnx' out
expect 0 '' "$braid" --version
check 'version' grep -Eq '^braid [0-9]+\.[0-9]+' out
expect 0 '' "$braid" version
check 'version, the command' grep -Eq '^braid [0-9]+\.[0-9]+' out
expect 0 '' "$braid" -h
check 'help of all' grep -q 'compile  *MODEL.onnx' out
expect 0 '' "$braid" help
check 'help, the command' grep -q 'compile  *MODEL.onnx' out
expect 2 "braid: unknown command 'fly'*" "$braid" help fly
for command in compile run test bench explain ops device profile help version; do
    expect 0 '' "$braid" help $command
    cp out about
    expect 0 '' "$braid" $command -h
    check "both helps of $command" cmp out about
    expect 0 '' "$braid" $command --help
    check "help of $command" grep -q "^usage: braid $command" out
done

# ---- run
for target in interp cpu; do
    run=("$braid" run --target "$target")
    expect 0 '' "${run[@]}" add.onnx -i x=x.npy -i w=w.npy
    check "summary ($target)" grep -qx 'y float32\[1,2\] min 4 mean 5 max 6' out
    expect 0 '' "${run[@]}" add.onnx -i x=x.npy -i w=w.npy -o dir.$target --threads 2
    check 'output file' cmp <(tail -c 8 dir.$target/output_0.npy) <(printf "$four\000\000\300\100")
    check 'only the output' [ "$(ls dir.$target)" = output_0.npy ]
    expect 0 '' "${run[@]}" pair.onnx -i x=w.npy -o pair.$target
    check 'a sequence is a .pb file' [ "$(ls pair.$target)" = output_0.pb ]
    expect 0 '' "${run[@]}" pair.onnx -i x=w.npy
    check 'summary of a sequence' grep -qx 's sequence of 2 float32' out
    expect 0 '' "${run[@]}" pick.onnx -i x=x3.npy -i i=i1.npy
    check 'picked' grep -q 'y float32\[\] min 2' out
    # scan: x has one more axis, w is what the step before made
    npy steps.npy '<f4' '2, 2' "$one$two$three$four"
    expect 0 '' "${run[@]}" step.onnx --scan x --carry w=y -i x=steps.npy -i w=w.npy
    check 'folded loop' grep -qx 'y float32\[2\] min 7 mean 8.5 max 10' out
    expect 2 'braid: run --carry needs --scan: one run is one step*' \
        "${run[@]}" step.onnx --carry w=y -i x=w.npy -i w=w.npy
    expect 2 "braid: carried input 'w' is float32?2?, but output 'y' is float32?n,2?*" \
        "${run[@]}" add.onnx --scan x --carry w=y -i x=x.npy -i w=w.npy

    expect 0 '' "${run[@]}" add.onnx --input-shape x=1,? -i x=x.npy -i w=w.npy
    check 'a shape that fits' grep -q 'min 4 mean 5 max 6' out
    expect 1 "braid: add.onnx: input 'x': expected float32?3,2?, got float32?1,2?" \
        "${run[@]}" add.onnx --input-shape 'x=[3,?]' -i x=x.npy -i w=w.npy
    expect 0 '' "${run[@]}" anyrank.onnx -i x=w.npy
    check 'the rank of the run' grep -qx 'y float32\[2\] min 3 mean 3.5 max 4' out
    expect 0 '' "${run[@]}" anyrank.onnx -i x=x.npy
    check 'another one' grep -qx 'y float32\[1,2\] min 1 mean 1.5 max 2' out

    expect 1 'braid: none.onnx: No such file or directory' "${run[@]}" none.onnx
    expect 1 'braid: junk.onnx: *' "${run[@]}" junk.onnx
    check 'one line' [ "$(wc -l <err)" -eq 1 ]
    expect 1 'braid: odd.onnx: *Odd*' "${run[@]}" odd.onnx -i x=x.npy -i w=w.npy
    expect 1 "braid: add.onnx: input 'w' is missing*" "${run[@]}" add.onnx -i x=x.npy -o no
    expect 1 "braid: add.onnx: the model has no input 'z'; its inputs are: 'x', 'w'" "${run[@]}" add.onnx -i z=x.npy
    expect 1 'braid: none.npy: No such file or directory' "${run[@]}" add.onnx -i x=none.npy
    expect 1 'braid: x.txt: neither a .npy nor a .pb file' "${run[@]}" add.onnx -i x=x.txt
    expect 1 'braid: big.npy: its elements are big-endian*' "${run[@]}" add.onnx -i x=big.npy -i w=w.npy
    expect 1 'braid: short.npy: its shape needs 40 bytes of elements, it has 8' \
        "${run[@]}" add.onnx -i x=short.npy -i w=w.npy
    expect 1 "braid: add.onnx: input 'x': expected float32?n,2?, got float64?1?" \
        "${run[@]}" add.onnx -i x=double.npy -i w=w.npy -o no
    expect 1 'braid: pick.onnx: *pick*' "${run[@]}" pick.onnx -i x=x3.npy -i i=i9.npy -o no
    check 'one line' [ "$(wc -l <err)" -eq 1 ]
    check 'a failed run writes nothing' [ ! -e no ]
    expect 2 "braid: input 'x' is given twice*" "${run[@]}" add.onnx -i x=x.npy -i x=x.npy
done
printf '\010\001\020\001J\004%b' "$one" >one.pb # TensorProto float32[1]
expect 1 "braid: add.onnx: input 'x': expected float32?n,2?, got float32?1?" \
    "$braid" run --target interp add.onnx -i x=one.pb -i w=w.npy
printf '\010\001\020' >cut.pb
expect 1 'braid: cut.pb: *' "$braid" run --target interp add.onnx -i x=cut.pb

# ---- compile
expect 0 '' "$braid" compile add.onnx -o add.so --emit add.c
check 'the text was written' test -s add.c
check 'nothing else is left' [ "$(echo add*)" = 'add.c add.onnx add.so' ]
expect 0 '' "$braid" run add.so -i x=x.npy -i w=w.npy --threads 2
check 'summary of the library' grep -qx 'y float32\[1,2\] min 4 mean 5 max 6' out
expect 2 "braid: the library is for target 'cpu'*" "$braid" run add.so --target interp
expect 2 'braid: a loop can be folded into a model*' "$braid" run add.so --scan x
mkdir sub
expect 0 '' "$braid" compile sub/../add.onnx
check 'default name' test -s add.so
expect 1 'braid: junk.onnx: *' "$braid" compile junk.onnx -o junk.so
check 'no library after a failure' [ ! -e junk.so ]
expect 1 'braid: add.onnx: *' "$braid" compile add.onnx -o /nonexistent/add.so
head -c 100 add.so >cut.so
expect 1 'braid: cut.so: cannot be opened as a library*' "$braid" run cut.so
# outputs are regular files, in folders that are there, or links to such
expect 1 "braid: add.onnx: cannot write '/dev/null': it is a device, pipe or socket, not a file" "$braid" compile add.onnx -o /dev/null
check '/dev/null is as it was' test -c /dev/null
expect 1 "braid: add.onnx: cannot write 'sub': it is a folder, not a file" "$braid" compile add.onnx -o sub
expect 1 "braid: add.onnx: cannot write 'none/add.so': there is no folder 'none'" "$braid" compile add.onnx -o none/add.so
expect 1 "braid: add.onnx: cannot write 'none/add.c': there is no folder 'none'" "$braid" compile add.onnx -o no.so --emit none/add.c
check 'known beforehand' [ ! -e no.so ]
# the library as C files
expect 0 '' env PATH=/nonexistent "$braid" compile add.onnx --cpu armv8-a --emit-c c
check 'all of them' [ "$(cd c && echo *)" = 'Makefile README.md braid_model.h main.c model.c' ]
check 'the processor is in the Makefile' grep -qx 'ARCH = -march=armv8-a' c/Makefile
expect 2 'braid: --emit-c writes no library*' "$braid" compile add.onnx --emit-c c -o no.so
expect 2 'braid: emulated programs are not written as C files*' "$braid" compile add.onnx --emit-c no --target emulate:cuda
expect 2 "braid: 'armv8 a' is not the name of a processor*" "$braid" compile add.onnx --emit-c no --cpu 'armv8 a'
expect 1 'braid: add.onnx: cannot make the folder*' "$braid" compile add.onnx --emit-c no/c
expect 1 'braid: junk.onnx: *' "$braid" compile junk.onnx --emit-c no
check 'no folder after a failure' [ ! -e no ]
expect 2 'braid: the library would be written over the model*' "$braid" compile add.onnx -o ./add.onnx
mkfifo pipe
expect 1 "braid: add.onnx: cannot write 'pipe': it is a device, pipe or socket, not a file" "$braid" compile add.onnx --emit pipe
rm add.so
echo old >sub/real.so
ln -s sub/real.so link.so
expect 0 '' "$braid" compile add.onnx -o link.so
check 'the link stays' test -L link.so
expect 0 '' "$braid" run sub/real.so -i x=x.npy -i w=w.npy
check 'its target is written' grep -qx 'y float32\[1,2\] min 4 mean 5 max 6' out
check 'nothing else is beside it' [ "$(ls sub)" = real.so ]
expect 1 'braid: link.so: it is a compiled library already, not a model' "$braid" compile link.so
expect 1 'braid: link.so: it is a compiled library; explain needs the model' "$braid" explain link.so
expect 1 'braid: no/such: cannot make this folder: its parent folder does not exist' "$braid" run link.so -i x=x.npy -i w=w.npy -o no/such
expect 1 'braid: x.npy: it is a file; outputs go to a folder' "$braid" run link.so -i x=x.npy -i w=w.npy -o x.npy
# a disk that is full: here, files of more than 4 KiB cannot be written
limited() { (ulimit -f 4 && "$@"); }
expect 1 "braid: add.onnx: cannot write 'full.so.*: File too large" limited "$braid" compile add.onnx -o full.so
check 'what was begun is removed' [ -z "$(echo full*)" -o "$(echo full*)" = 'full*' ]
expect 1 "braid: outs/output_0.npy: *: File too large" limited "$braid" run link.so --size n=2000 -o outs
check 'here too' [ -z "$(ls outs)" ]
# a compiler with arguments
printf '#!/bin/sh\necho "$1" >>"$work/seen"\nshift\nexec cc "$@"\n' >wrapper
chmod +x wrapper
export work
CC='./wrapper  one -O1' BRAID_CACHE=$work/cache3 expect 0 '' "$braid" compile add.onnx -o worded.so
check 'CC with arguments' [ "$(sort -u seen)" = one ]
expect 0 '' "$braid" run worded.so -i x=x.npy -i w=w.npy
# a signal ends the compiler, too, and removes what was begun
printf '#!/bin/sh\nsleep 60 &\necho $! >>"$work/sleepers"\nwait\n' >sleeper
chmod +x sleeper
mkdir begun
for signal in INT TERM HUP; do
    rm -f sleepers
    # INT is ignored in the background of a script: python starts it as a terminal would
    CC=$work/sleeper TMPDIR=$work/begun BRAID_CACHE=$work/cache4 timeout 30 python3 - "$braid" $signal <<'END'
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
number = getattr(signal, "SIG" + sys.argv[2])
p = subprocess.Popen([sys.argv[1], "compile", "add.onnx", "-o", "begun/add.so"])
while not os.path.exists("sleepers") or not open("sleepers").read().strip():
    time.sleep(0.02)
p.send_signal(number)
sys.exit(0 if p.wait() == -number else 1)
END
    check "SIG$signal ends it" [ $? -eq 0 ]
    check "SIG$signal: the compiler's child has ended" no grep -q '^State:.[RSD]' /proc/"$(cat sleepers)"/status
    check "SIG$signal: nothing is left" [ -z "$(ls begun)" ]
done
CC=/nonexistent/cc BRAID_CACHE=$work/cache2 expect 1 'braid: add.onnx: *' \
    "$braid" run add.onnx -i x=x.npy -i w=w.npy

# ---- the cache
check 'the cache is filled' test -n "$(find cache -name model.so)"
before=$(find cache -name model.so | wc -l)
expect 0 '' "$braid" run add.onnx -i x=x.npy -i w=w.npy
check 'the cache is used' [ "$before" -eq "$(find cache -name model.so | wc -l)" ]
expect 0 '' "$braid" compile add.onnx --tune -o tuned.so
expect 0 'weights in f16: results for random inputs are those of float32 weights: *' \
    "$braid" compile add.onnx --weights f16 --size n=2 -o narrow.so
expect 2 '*sizes of the inputs are not known: set them with --size n=N*' "$braid" compile add.onnx --weights f16 -o unknown.so
check 'nothing is written then' no test -e unknown.so
expect 2 '*weights are f16, bf16 or int8, not *f8*' "$braid" compile add.onnx --weights f8 --size n=2 -o narrow.so
expect 0 '' "$braid" run add.onnx -i x=x.npy -i w=w.npy
check 'what tuning found makes another entry' [ "$before" -lt "$(find cache -name model.so | wc -l)" ]
before=$(find cache -name model.so | wc -l)
rm cache/tuning.db*
expect 0 '' "$braid" run add.onnx -i x=x.npy -i w=w.npy
check 'so do other numbers of the machine' [ "$before" -lt "$(find cache -name model.so | wc -l)" ]
for so in cache/*/model.so; do echo damaged >"$so"; done
expect 0 '' "$braid" run add.onnx -i x=x.npy -i w=w.npy
check 'a damaged entry is made again' grep -q 'min 4 mean 5 max 6' out
# shellcheck disable=SC2012 # names of the cache are hexadecimal
so=$(ls -t cache/*/model.so | head -n 1)
# damage COMMAND…: the entry in use is made again, and is whole then
damage() {
    "$@"
    expect 0 '' "$braid" run add.onnx -i x=x.npy -i w=w.npy
    check "made again after $*" grep -q 'min 4 mean 5 max 6' out
    check "whole after $*" test -s "$so" -a "$(wc -c <"$so") $(basename "$so")" = "$(awk '{print $1, $3}' "$(dirname "$so")/sums")"
}
damage truncate -s 5000 "$so"
damage truncate -s 0 "$so"
damage cp /bin/true "$so"
damage rm "$(dirname "$so")/sums"
damage rm -r "$(dirname "$so")"
before=$(ls -i "$so")
chmod 777 "$(dirname "$so")"
expect 0 '' "$braid" run add.onnx -i x=x.npy -i w=w.npy
check 'an entry that others can change is made again' [ "$before" != "$(ls -i "$so")" ]
check 'for the user alone' [ "$(stat -c %a "$(dirname "$so")")" = 700 ]
mkdir -m 777 shared
BRAID_CACHE=$work/shared expect 0 '' "$braid" run add.onnx -i x=x.npy -i w=w.npy
check 'nothing is kept where others can write' [ -z "$(ls shared)" ]
# several at once: one entry, all answers right
for i in 1 2 3 4; do
    BRAID_CACHE=$work/race "$braid" run add.onnx -i x=x.npy -i w=w.npy >race.$i 2>&1 &
    racing[i]=$!
done
for i in 1 2 3 4; do
    wait "${racing[i]}"
    check "race $i" [ $? -eq 0 -a "$(cat race.$i)" = 'y float32[1,2] min 4 mean 5 max 6' ]
done
check 'one entry' [ "$(ls race | grep -vc 'tuning\|objects')" -eq 1 ]
for size in 0 1 100 4096 5000; do
    truncate -s $size race/tuning.db
    BRAID_CACHE=$work/race expect 0 '' "$braid" run add.onnx -i x=x.npy -i w=w.npy
    check "a database cut off at $size" grep -q 'min 4 mean 5 max 6' out
done
head -c 9000 /bin/sh >race/tuning.db
BRAID_CACHE=$work/race expect 0 '' "$braid" run add.onnx -i x=x.npy -i w=w.npy
check 'a foreign file in place of the database' [ "$(head -c 15 race/tuning.db)" = 'SQLite format 3' ]

# what takes long is shown on a terminal, and nowhere else
printf '#!/bin/sh\ncase "$*" in *shown.so*) sleep 4 ;; esac\nexec cc "$@"\n' >slowly
chmod +x slowly
CC=$work/slowly expect 0 '' "$braid" compile add.onnx -o shown.so
check 'silent in a pipe' [ ! -s out ]
CC=$work/slowly timeout 60 python3 - "$braid" >out <<'END'
import os, pty, sys
code = os.waitstatus_to_exitcode(pty.spawn([sys.argv[1], "compile", "add.onnx", "-o", "shown.so"], lambda fd: os.read(fd, 1024)))
sys.exit(code)
END
check 'compiled on a terminal' [ $? -eq 0 ]
check 'progress' grep -Eq 'running the C compiler, [2-9] s' out

# ---- test
mkdir -p t/good/test_data_set_0 t/deep/er/wrong/test_data_set_0 t/skip/test_data_set_0
tensor() { # DIMS TYPE BYTES DATA
    printf "$1\\020\\$(printf %03o "$2")J\\$(printf %03o "$3")$4"
}
for d in t/good t/deep/er/wrong t/skip; do
    cp add.onnx $d/model.onnx
    tensor '\010\001\010\002' 1 8 "$one$two" >$d/test_data_set_0/input_0.pb
    tensor '\010\002' 1 8 "$three$four" >$d/test_data_set_0/input_1.pb
    tensor '\010\001\010\002' 1 8 "$four\000\000\300\100" >$d/test_data_set_0/output_0.pb
done
cp odd.onnx t/skip/model.onnx
tensor '\010\001\010\002' 1 8 "$four$four" >t/deep/er/wrong/test_data_set_0/output_0.pb
for target in interp cpu; do
    test=("$braid" test --target "$target")
    expect 0 '' "${test[@]}" t/good
    check 'last line' [ "$(cat out)" = '1 passed, 0 failed, 0 skipped' ]
    expect 1 '' "${test[@]}" --jobs 2 t/
    check 'last line' [ "$(tail -n 1 out)" = '1 passed, 1 failed, 1 skipped' ]
    check 'the failure' grep -q "^FAIL t/deep/er/wrong: output 0 'y' element \[0,1\] is 6, expected 4 (1 of 2 differ)" out
    check 'two lines' [ "$(wc -l <out)" -eq 2 ]
    expect 0 '' "${test[@]}" --atol 3 --verbose t
    check 'the skip' grep -q '^SKIP t/skip: .*Odd' out
done
# a library in place of the model
mkdir made
cp -r t/good/test_data_set_0 made
expect 0 '' "$braid" compile add.onnx -o made/model.so
expect 0 '' "$braid" test made
check 'a compiled one is tested' [ "$(cat out)" = '1 passed, 0 failed, 0 skipped' ]
cp t/deep/er/wrong/test_data_set_0/output_0.pb made/test_data_set_0
expect 1 '' "$braid" test made
check 'and fails' [ "$(tail -n 1 out)" = '0 passed, 1 failed, 0 skipped' ]
# stopped in the second of three: what is known is printed. A fifo's writer waits until it is opened for reading.
mkdir -p stopped/a stopped/b/test_data_set_0 stopped/c
cp -r t/good/* stopped/a
cp -r t/good/* stopped/c
mkfifo stopped/b/model.onnx
"$braid" test --jobs 1 --target interp stopped >out 2>err &
tests=$!
timeout 20 bash -c 'exec 9>stopped/b/model.onnx; kill -TERM $0; sleep 20' $tests &
writer=$!
wait $tests
check 'stopped' [ $? -eq 1 ]
kill $writer
wait $writer
check 'says so' grep -qx 'braid: stopped by a signal' err
check 'who was not done' grep -qx 'FAIL stopped/b: not done when the tests were stopped' out
check 'what was done' [ "$(tail -n 1 out)" = '1 passed, 1 failed, 0 skipped' ]
expect 1 'braid: cache: there is no test in this folder' "$braid" test cache
expect 1 'braid: none: No such file or directory' "$braid" test none

# ---- bench, explain, ops
expect 2 'braid: sizes of the inputs are not known: set them with --size n=N, or give the inputs (-i)*' "$braid" bench add.onnx
expect 2 'braid: sizes of the inputs are not known: *' "$braid" run add.onnx --target interp
expect 2 'braid: --size k: no input has such a size; sizes to set are: n*' "$braid" bench add.onnx --target interp --size k=3
expect 2 "braid: option --size: 'n=-1' is not a valid NAME=N*" "$braid" bench add.onnx --size n=-1
expect 2 'braid: --size n=3, but a given input has 1*' "$braid" bench add.onnx --target interp -i x=x.npy --size n=3
expect 0 '' "$braid" run add.onnx --target interp --size x:0=3
check 'random inputs are told' [ "$(head -n 2 out)" = 'input x float32[3,2], random
input w float32[2], random' ]
check 'and used' grep -q '^y float32\[3,2\] ' out
expect 0 '' "$braid" bench add.onnx --target interp --size n=3
check 'sizes of a bench' grep -qx 'input x float32\[3,2\], random' out
check 'bench' grep -Eq '^min [0-9.]+ us, median [0-9.]+ us, max [0-9.]+ us, [0-9]+ runs$' out
check 'the first run of a bench' grep -Eq '^the first run [0-9.]+ us$' out
expect 0 '' "$braid" bench add.onnx --target interp --size n=3 --every 2
check 'bench of a stream' grep -Eq '^95 % within [0-9.]+ us, one run every 2 ms$' out
expect 2 "braid: option --every: '0' is not a valid MS*" "$braid" bench add.onnx --every 0
expect 0 '' "$braid" bench add.onnx --json -i x=x.npy --threads 1 --every 0.5
check 'bench of a stream as JSON' grep -Eq '"p95_us": [0-9.]+, "max_us": [0-9.]+, "first_us": [0-9.]+, "every_ms": 0.5,' out
expect 0 '' "$braid" bench add.onnx --json -i x=x.npy --threads 1
check 'bench as JSON' grep -q '"median_us": [0-9].*"inputs": {"x": "float32\[1,2\]", "w": "float32\[2\]"}' out
expect 0 '' "$braid" profile add.onnx --size n=3 --threads 1 --runs 2
check 'profile' grep -Eq '^add.onnx: cpu, 1 unit, 2 runs of [0-9.]+ us' out
check 'a part of a profile' grep -Eq '^ group add \(Add\) +team +[0-9.]+ +[0-9.]+ +1.00' out
expect 0 '' "$braid" profile add.onnx --size n=3 --threads 1 --runs 2 --json profile.json --trace trace.json
check 'a profile as JSON' grep -q '"units": 1, "runs": 2, "run_ns": [0-9]' profile.json
check 'a trace' grep -q '"ph": "B", .*"name": "group add (Add)"' trace.json
expect 0 '' "$braid" profile add.onnx --size n=3 --threads 1 --runs 1 --json -
check 'a profile as JSON alone' grep -q '^{"format": 1, ' out
expect 0 '' "$braid" profile add.onnx --size n=3 --threads 1 --runs 1 --shapes
check 'shapes' grep -Eq '^y add \(Add\) +1 +1 +\[3,2\] +\[3,2\] +\[3,2\]' out
expect 2 'braid: the interpreter does not measure itself: profile for another target*' "$braid" profile add.onnx --size n=3 --target interp
expect 2 'braid: --shapes prints a table, and --json - nothing but JSON*' "$braid" profile add.onnx --json - --shapes
expect 2 "braid: option --runs: '0' is not a valid N*" "$braid" profile add.onnx --runs 0
expect 0 '' "$braid" explain add.onnx
check 'explain' grep -q '^input x float32' out
expect 0 '' "$braid" explain add.onnx --json
check 'explain as JSON' grep -q '"statements": {' out
type='"type": "float32", "shape": \[null, 2\], "bytes": null'
check 'placement of an input' grep -q "\"name\": \"x\".* $type, \"where\": \"caller\"" out
check 'placement of an output' grep -q "\"name\": \"y\".* $type, \"where\": .*\"level\": \"[a-z]*\", \"loop\": null" out
expect 0 '' "$braid" compile step.onnx --carry w=y --torch my::step -o state.so
check 'a step that is compiled with its state' "$braid" run state.so -i x=w.npy -i w=w.npy
expect 2 "braid: 'step' is not the name of an operator, NAMESPACE::NAME*" \
    "$braid" compile step.onnx --torch step -o state.so
expect 0 '' "$braid" explain step.onnx --carry w=y
check 'state of a step' grep -qx 'state w: output y of the run before' out
expect 1 'braid: step.onnx: the C compiler nope cannot be run: install one *' \
    env CC=nope "$braid" compile step.onnx -o nope.so
expect 0 '' "$braid" explain open.onnx --json --scan x --carry w=y
check 'state' grep -q '"state": \[{"input": "w", "output": "y"}\]' out
check 'placement of what is carried' grep -q '"where": "carried", "in_place_of": "w", "resident": true' out
expect 0 '' "$braid" explain add.onnx --html add.html
check 'a page prints nothing else' no test -s out
check 'the page' grep -q '^<!doctype html>' add.html
check 'and its data' grep -q '"statement": 0, "kind": "uniform"' add.html
expect 0 '' "$braid" explain add.onnx --html add.html --json
check 'a page and JSON' grep -q '"tree": \[' out
expect 1 "braid: none/add.html: cannot write 'none/add.html': there is no folder 'none'" "$braid" explain add.onnx --html none/add.html
mkdir folder.html
expect 1 "braid: folder.html: cannot write 'folder.html': it is a folder, not a file" "$braid" explain add.onnx --html folder.html
expect 1 'braid: junk.onnx: *' "$braid" explain junk.onnx --html junk.html
check 'no page of what is no model' no test -e junk.html
expect 2 'braid: option --html needs a value*' "$braid" explain add.onnx --html
expect 2 'braid: --profile needs --html*' "$braid" explain add.onnx --profile p.json
expect 2 'braid: --html and --dump-after exclude each other*' "$braid" explain add.onnx --html add.html --dump-after fuse
expect 0 '' "$braid" explain add.onnx --units 4,16
check 'a row for each number of units' [ "$(awk 'NR > 1 { printf "%s ", $1 }' out)" = '1 4 16 ' ]
expect 0 '' "$braid" explain add.onnx --units 2 --json
check 'units as JSON' python3 -c 'import json, sys
units = json.load(sys.stdin)["units"]
assert [u["units"] for u in units] == [1, 2] and units[0]["speedup"] == 1 and units[1]["busiest_ns"] >= units[1]["mean_ns"] > 0' <out
expect 2 "braid: --units takes up to 15 numbers from 1 to 1024, as in 4,8,16, not '4,x'*" "$braid" explain add.onnx --units 4,x
expect 2 'braid: --units needs a target that is scheduled, not interp*' "$braid" explain add.onnx --units 4 --target interp
expect 2 'braid: --units and --html or --dump-after exclude each other*' "$braid" explain add.onnx --units 4 --html add.html
profile=("$braid" explain add.onnx --html timed.html --profile p.json)
expect 1 'braid: p.json: No such file or directory' "${profile[@]}"
echo '{"parts": [' >p.json
expect 1 'braid: p.json: not JSON: line 2: *' "${profile[@]}"
timed() { # PARTS EVENTS: a profile
    printf '{"units": 1, "runs": 1, "run_ns": 9, "parts": [%s], "timeline": {"events": [%s]}}' "$1" "$2" >p.json
}
measured='"executions": [1], "ns": [1]'
whole="{\"id\": 0, \"kind\": \"program\", \"statement\": null, $measured}"
for wrong in '' '{"id": 0}' '{"id": 0, "kind": "loop", "executions": [1, 1], "ns": null}' '{"id": 0, "kind": "loop", "executions": [1], "ns": ["x"]}'; do
    if [[ $wrong ]]; then timed "$wrong" ''; else echo '{"parts": []}' >p.json; fi
    expect 1 'braid: p.json: it is no profile as braid profile --json writes it' "${profile[@]}"
done
timed "$whole" '[1, 0, 0, 1, 0]'
expect 1 'braid: p.json: it is no profile as *' "${profile[@]}"
timed "$whole, {\"id\": 1, \"kind\": \"loop\", \"statement\": 0, $measured}" ''
expect 1 'braid: p.json: it is of another model, target, number of threads or other choices: statement 0 is a loop there and a uniform here' "${profile[@]}"
timed "{\"id\": 1, \"kind\": \"loop\", \"statement\": 1000000000000, $measured}" ''
expect 1 'braid: p.json: *: statement 1000000000000 is a loop there and none here' "${profile[@]}"
check 'no page with a profile that does not fit' no test -e timed.html
timed "{\"name\": \"</script>\", \"id\": 0, \"kind\": \"program\", \"statement\": null, $measured}" '[0, 0, 0, 1, 0]'
expect 0 '' "${profile[@]}"
check 'a profile in the page' grep -q '"profile": {"units":1.*\\u003c/script>' timed.html
expect 1 'braid: junk.onnx: *' "$braid" explain junk.onnx
expect 0 '' "$braid" explain add.onnx --dump-after fuse
check 'the tree after a pass' grep -q '^program ' out
check 'and nothing else' no grep -q '^statements: ' out
expect 2 "braid: there is no pass 'melt' for target cpu; the passes are lower, dead-code, *fuse, *sync*" \
    "$braid" explain add.onnx --dump-after melt
expect 2 "braid: there is no pass 'fuse' for target interp; *" "$braid" compile add.onnx --target interp --dump-after fuse
"$braid" compile add.onnx -o passes.so --dump-after lower --time-passes >out 2>err
check 'passes of a compilation' grep -q '^program ' out
check 'times of passes' grep -Eq '^fuse +[0-9.]+ ms, verified in [0-9.]+ ms$' err
check 'the library is made' test -s passes.so
expect 0 '' "$braid" ops
check 'ops' grep -q '^LSTM  *ai.onnx' out

# ---- device: the table, and measured costs in its place
expect 0 '' "$braid" device
check 'devices' grep -Eq '^cuda:sm_90 +published +132 +256 .* 200 +600 ' out
check 'devices without clusters' grep -Eq '^cuda:sm_80 +published +108 +256 .* 12 +650 ' out
expect 0 '' "$braid" device cuda:sm_90
check 'published costs' grep -Eqx 'team_barrier_ns +600' out
expect 2 "braid: there is no device 'cuda:sm_1'*" "$braid" device cuda:sm_1
expect 2 'braid: --json needs a TARGET*' "$braid" device --json
expect 0 '' "$braid" device cuda:sm_90 --json
sed 's/"team_barrier_ns": 600/"team_barrier_ns": 2222/' out >all.json
echo '{"name": "some \"card\"", "list": [1, {"x": null}], "target": "cuda:sm_90", "costs": {"team_barrier_ns": 1234.5, "cluster_barrier_ns": 300}}' >costs.json
barrier='"name": "grid", "bytes": 52428800, "read_gbps": 101.5, "barrier_ns":'
explain=("$braid" explain add.onnx --target cuda:sm_90 --json)
expect 0 '' "${explain[@]}"
check 'scheduled by published costs' grep -q "\"measured\": false.*$barrier 600}" out
expect 0 '' "${explain[@]}" --costs costs.json
check 'scheduled by the costs of a file' grep -q "\"measured\": true.*$barrier 1234}" out
expect 0 '' "$braid" device --import costs.json
check 'imported' grep -Eqx 'team_barrier_ns +600 +1234.5' out
check 'the others stay' grep -Eqx 'core_barrier_ns +12 +12' out
expect 0 '' "$braid" device
check 'measured in the table' grep -Eq '^cuda:sm_90 +measured +132 .* 300 +1234 ' out
check 'of this device alone' grep -Eq '^cuda:sm_100 +published ' out
expect 0 '' "${explain[@]}"
check 'scheduled by measured costs' grep -q "\"measured\": true.*$barrier 1234}" out
expect 0 '' "${explain[@]}" --costs published
check 'published all the same' grep -q "\"measured\": false.*$barrier 600}" out
expect 0 '' "$braid" device --import all.json cuda:sm_90
expect 0 '' "${explain[@]}"
check 'a later import replaces' grep -q "\"measured\": true.*$barrier 2222}" out
expect 1 'braid: all.json: these are costs of cuda:sm_90, not of cuda:sm_80' "$braid" device cuda:sm_80 --import all.json
expect 1 'braid: none.json: No such file or directory' "$braid" device --import none.json
# costs TEXT MESSAGE: what is wrong with a file
costs() {
    printf '%s' "$1" >wrong.json
    expect 1 "braid: wrong.json: $2" "$braid" device --import wrong.json cuda:sm_90
}
costs '' "not JSON: line 1: '[[]' or '{' expected near end of file"
costs '{"costs": {"team_barrier_ns": 1400}' 'not JSON: line 1: *'
costs '{"costs": {"team_barrier_ns": 1400}} x' 'not JSON: line 1: end of file expected near *'
costs '{"a": "b\' 'not JSON: line 1: *'
costs "$(printf '{"a": %05000d' 0 | tr 0 '[')" 'not JSON: line 1: maximum parsing depth reached near *'
costs '{"target": "cuda:sm_90"}' 'there are no "costs"'
costs '{"costs": {"speed": 1}}' "there is no cost 'speed'"
costs '{"costs": {"team_barrier_ns": -1}}' 'team_barrier_ns is not a positive number'
costs '{"costs": {"team_barrier_ns": "1"}}' 'team_barrier_ns is not a positive number'
costs '{"costs": {"host_bytes": 1}}' 'cuda:sm_90 has no host_bytes'
costs '{"costs": {"team_barrier_ns": 1e9}}' 'team_barrier_ns is 1e+09, too far from the published 600 to be believed'
echo '{"target": "toaster", "costs": {"gflops": 1}}' >wrong.json
expect 1 "braid: wrong.json: there is no device 'toaster'*" "$braid" device --import wrong.json
echo '{"target": "cpu", "costs": {"gflops": 100}}' >wrong.json
expect 1 'braid: wrong.json: the costs of cpu cannot be imported: the first compilation measures them' "$braid" device --import wrong.json

echo "$((count - bad)) passed, $bad failed"
[[ $bad -eq 0 ]]
