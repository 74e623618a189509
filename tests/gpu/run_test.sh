#!/bin/bash
# tests/gpu/run.sh as far as it goes without a GPU: packed, and run with the emulated CUDA driver.
#
# usage: run_test.sh BUILD EMULATED SCRATCH    BUILD: folder of the programs; EMULATED: folder of the emulated libcuda.so.1
set -uo pipefail
if [ $# -ne 3 ]; then echo "usage: $0 BUILD EMULATED SCRATCH" >&2; exit 2; fi
script="$(dirname "${BASH_SOURCE[0]}")/run.sh" build=$1 emulated=$2 scratch=$3
rm -rf "$scratch"
mkdir -p "$scratch/tools" || exit 2
unset OUT WEIGHTPRESS_DECODE_PTX
num_failed=0

check() {  # check WHAT COMMAND...
  local what=$1; shift
  "$@" && return
  echo "FAILED: $what" >&2
  num_failed=$((num_failed + 1))
}
# shellcheck disable=SC2317  # reached through check
says() { grep -Eq -- "$1" "$scratch/out/gpu-run.txt"; }

run() {  # run WHAT EXIT_CODE [NAME=VALUE...] -- ARGUMENTS...: of run.sh
  local what=$1 expected=$2 status=0 variables=(); shift 2
  while [ "$1" != -- ]; do variables+=("$1"); shift; done
  shift
  echo "-- $what"
  env OUT="$scratch/out" PATH="$scratch/tools:$PATH" "${variables[@]}" "$script" "$@" >"$scratch/printed" 2>&1 || status=$?
  if [ $status -ne "$expected" ]; then
    cat "$scratch/printed"
    check "$what: exit code $status instead of $expected" false
  fi
}
run_emulated() {  # run_emulated WHAT EXIT_CODE [NAME=VALUE...] -- ARGUMENTS...
  local what=$1 expected=$2; shift 2
  run "$what" "$expected" "LD_LIBRARY_PATH=$emulated" "$@"
}

sanitizer() {  # sanitizer TEXT EXIT_CODE: the one on PATH runs its program, and says so
  cat >"$scratch/tools/compute-sanitizer" <<TEXT
#!/bin/bash
while [[ \$1 = --* ]]; do
  case \$1 in --tool|--target-processes|--error-exitcode) shift ;; esac
  shift
done
"\$@" || exit
echo "========= $1"
exit $2
TEXT
  chmod +x "$scratch/tools/compute-sanitizer"
}

stub() {  # stub NAME: a program of that name in the folder "stubs", from stdin
  mkdir -p "$scratch/stubs"
  { echo '#!/bin/bash'; cat; } >"$scratch/stubs/$1"
  chmod +x "$scratch/stubs/$1"
}

# ---- the programs themselves
run "wrong use" 2 -- --weights
run "a number that is none" 2 -- --weights many
run "nothing packed" 2 -- "$scratch/nothing"
check "that it says how to pack" says 'run.sh --pack'
run "nothing built" 1 -- --pack --build "$scratch" "$scratch/packed"
run "pack" 0 -- --pack --build "$build" "$scratch/packed"
check "that the C++ library is carried" test -f "$scratch/packed/lib/libstdc++.so.6"
check "that the C library is not" test ! -e "$scratch/packed/lib/libc.so.6"

run_emulated "no GPU" 77 WEIGHTPRESS_CUDA_INIT_RESULT=100 -- "$scratch/packed"
check "that there was none" says 'no GPU was at hand'

small=(--units 1 --weights 100000 --runs 2)
sanitizer "ERROR SUMMARY: 0 errors" 0
run_emulated "all that can run" 0 -- "${small[@]}" "$scratch/packed"
check "that all parts passed" test "$(grep -c '^passed ' "$scratch/out/gpu-run.txt")" -eq 9
check "that what cannot run is skipped" says '^skipped  official kernel: there is no '
check "that rates are told" says '^ +HistogramEncode: [0-9.]+ GB/s'
check "that the log is what was printed" cmp "$scratch/printed" "$scratch/out/gpu-run.txt"
check "that times are written" grep -q '"name": "BM_Decode/normal/100000/cuda:0"' "$scratch/out/gpu-times.json"

# ---- what goes wrong, each in one part: the other programs are made up
stub weightpress <<'TEXT'
case $1 in
  devices) echo 'cuda:0   a GPU' ;;
  selftest) echo 'ok      cuda:0 (a GPU)' ;;
esac
TEXT
ln -sf "$scratch/packed/bench_gpu_df11" "$scratch/stubs/bench_gpu_df11"
ln -sfn "$scratch/packed/lib" "$scratch/stubs/lib"
run_emulated "made-up programs" 0 -- "${small[@]}" "$scratch/stubs"
run_emulated "a GPU that fails" 1 WEIGHTPRESS_CUDA_FAIL_LAUNCH_AT=2 -- "${small[@]}" "$scratch/stubs"
check "that the benchmark failed" says '^FAILED   benchmark: exit code 2'
run_emulated "a wrong bit" 1 WEIGHTPRESS_CUDA_FLIP_AT=5 WEIGHTPRESS_CUDA_SEED=3 -- "${small[@]}" "$scratch/stubs"
check "that it was seen" says 'bench_gpu_df11: wrong: '
check "that the benchmark failed by it" says '^FAILED   benchmark: exit code 1'
sanitizer "RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)" 0
run_emulated "a race" 1 -- "${small[@]}" "$scratch/stubs"
check "that the sanitizer's summary counts" says '^FAILED   compute-sanitizer racecheck: it does not say'
sanitizer "ERROR SUMMARY: 1 error" 99
run_emulated "an error" 1 -- "${small[@]}" "$scratch/stubs"
check "that its exit code counts" says '^FAILED   compute-sanitizer memcheck: exit code 99'
sanitizer "Error: Device not supported" 1
run_emulated "a machine without support for the sanitizer" 0 -- "${small[@]}" "$scratch/stubs"
check "that it is skipped" says '^skipped  compute-sanitizer initcheck: '

stub weightpress <<'TEXT'
case $1 in
  devices) echo 'cuda:0   a GPU'; echo '         cannot be used: it is broken' ;;
  selftest) exit 1 ;;
  compress) exit 3 ;;
esac
TEXT
run_emulated "a GPU that cannot be used" 1 -- "${small[@]}" "$scratch/stubs"
check "that the GPU's trouble counts" says '^FAILED   devices: '
check "that the selftest's outcome counts" says '^FAILED   selftest: exit code 1'
check "that nothing is verified" says '^skipped  verify: '

stub weightpress <<'TEXT'
case $1 in
  devices) echo 'cuda:0   a GPU' ;;
  selftest) echo 'ok      cpu'; echo 'not run cuda: no kernels' ;;
esac
TEXT
run_emulated "a selftest without the GPU" 1 -- "${small[@]}" "$scratch/stubs"
check "that it is no success" says '^FAILED   selftest: it does not say'

stub weightpress <<'TEXT'
[ "$1" != devices ] || echo 'cuda:0   a GPU'
[ "$1" != selftest ] || sleep 1000
TEXT
run_emulated "a program that hangs" 1 -- "${small[@]}" --seconds 3 "$scratch/stubs"
check "that it was stopped" says '^FAILED   selftest: stopped after [123] s'
check "that the rest had no time" says '^FAILED   benchmark: there was no time left'

[ $num_failed -eq 0 ] && echo "all that was checked holds"
exit $((num_failed != 0))
