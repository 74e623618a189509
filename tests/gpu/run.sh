#!/bin/bash
# What is to be checked where a GPU is at hand, in one command of less than 8 minutes that needs nothing but an NVIDIA
# driver and what was packed before. README.md beside it says how to use it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2

usage() {
  cat <<'TEXT'
usage: tests/gpu/run.sh --pack [--build DIR] [--official PATH] [FOLDER]   where it is built
       tests/gpu/run.sh [OPTIONS] [FOLDER]                                where the GPU is
  FOLDER          what is carried there; default build/gpu
  --build DIR     of the programs; default build/release
  --official PATH decode.ptx of the PyPI package dfloat11 0.5.0, to be carried too
  --units N       random ones of the selftest; default 300
  --weights N     of the benchmark's unit; default 2^30, which takes 6 GB of the GPU's memory
  --runs N        of each stage; default 11
  --seconds N     after which nothing runs any more; default 465
Output: also in gpu-run.txt and gpu-times.json, in the folder $OUT (default: the current one).
Exit codes: 0 all that could run passed, 1 something failed, 2 wrong use, 77 no GPU was at hand.
TEXT
}

pack=no folder='' build=build/release official=${WEIGHTPRESS_DECODE_PTX:-} units=300 weights=$((1 << 30)) runs=11
# The limits of the parts, below, add up to no more, so that each has its time.
seconds=465
while [ $# -gt 0 ]; do
  case "$1" in
    -h|--help) usage; exit 0 ;;
    --pack) pack=yes ;;
    --build|--official|--units|--weights|--runs|--seconds)
      if [ $# -lt 2 ]; then usage >&2; exit 2; fi
      declare "${1#--}=$2"; shift ;;
    -*) usage >&2; exit 2 ;;
    *) if [ -n "$folder" ]; then usage >&2; exit 2; fi
       folder=$1 ;;
  esac
  shift
done
folder=${folder:-build/gpu}
case "$units$weights$runs$seconds" in *[!0-9]*) usage >&2; exit 2 ;; esac

# ---- where it is built

# The C library is the machine's own: what is carried asks for no newer one, and the loader belongs to it.
of_the_system='^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt)\.so'

needed_libraries() {  # needed_libraries PROGRAM...: paths, one a line
  local name arrow path rest
  ldd "$@" | while read -r name arrow path rest; do
    [ "$arrow" = '=>' ] || continue
    [[ $name =~ $of_the_system ]] && continue
    if [ "$path" = not ]; then echo "not found: $name $rest" >&2; continue; fi
    echo "$path"
  done | sort -u
}

pack_folder() {
  local program library python bytes
  for program in weightpress bench_gpu_df11; do
    if [ ! -x "$build/$program" ]; then
      echo "There is no $build/$program: build it first (cmake --build --preset release)" >&2
      return 1
    fi
  done
  rm -rf "${folder:?}/lib" "$folder/model" "$folder/decode.ptx" || return 1
  mkdir -p "$folder/lib" || return 1
  cp "$build/weightpress" "$build/bench_gpu_df11" "$folder" || return 1
  needed_libraries "$folder/weightpress" "$folder/bench_gpu_df11" >"$folder/lib/list" || return 1
  while read -r library; do
    cp -L "$library" "$folder/lib" || return 1
  done <"$folder/lib/list"
  rm "$folder/lib/list"

  if [ -n "$official" ]; then
    cp "$official" "$folder/decode.ptx" || return 1
  else
    echo "without decode.ptx: --official PATH names it"
  fi
  for python in build/python/bin/python python3; do
    "$python" scripts/make_synthetic_checkpoint.py "$folder/model" --weights 4000000 2>/dev/null && break
    rm -rf "$folder/model"
  done
  [ -d "$folder/model" ] || echo "without a model of its own (there is no Python with numpy): a smaller one of tests/cases is used"

  env "LD_LIBRARY_PATH=$folder/lib" "$folder/weightpress" --version || return 1
  bytes=$(find "$folder" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
  echo "$folder: $((bytes / 1000000)) MB"
}

if [ $pack = yes ]; then
  pack_folder
  exit
fi

# ---- where the GPU is

# Seconds.
readonly devices_limit=20 selftest_limit=100 official_limit=30 benchmark_limit=90 compress_limit=30 verify_limit=30 \
  sanitizer_limit=40
readonly kill_after=2  # a program that does not end when asked to
readonly sanitized_weights=300000 official_weights=20000000
# GB/s of BF16 on an H200.
readonly encode_goal=500 decode_goal=700

out=${OUT:-.}
log="$out/gpu-run.txt" times="$out/gpu-times.json"
[[ $folder = /* ]] || folder=$PWD/$folder
# For our programs alone: the machine's own tools want the machine's own libraries.
libraries=(env "LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
summary=() num_failed=0

passed() { summary+=("passed   $1"); }
skipped() { summary+=("skipped  $1: $2"); echo; echo "== $1: skipped: $2"; }
failed() { summary+=("FAILED   $1: $2"); num_failed=$((num_failed + 1)); echo "== $1: FAILED: $2"; }

# run_limited SECONDS COMMAND...: sets `trouble`, empty if it went well. What is printed stays in $scratch/printed.
run_limited() {
  local limit=$1 left=$((seconds - SECONDS)) status=0; shift
  [ "$limit" -le "$left" ] || limit=$left
  : >"$scratch/printed"
  if [ "$limit" -le 0 ]; then trouble="there was no time left"; return; fi
  timeout -k $kill_after "$limit" "$@" </dev/null 2>&1 | tee "$scratch/printed"
  status=${PIPESTATUS[0]}
  case $status in
    0) trouble='' ;;
    124|137) trouble="stopped after $limit s" ;;
    *) trouble="exit code $status" ;;
  esac
}

# part NAME SECONDS COMMAND... Where must_say is set, a regular expression, what is printed has to have such a line.
part() {
  local name=$1 start=$SECONDS; shift
  echo; echo "== $name"
  run_limited "$@"
  if [ -z "$trouble" ] && [ -n "${must_say:-}" ] && ! grep -Eq -- "$must_say" "$scratch/printed"; then
    trouble="it does not say '$must_say'"
  fi
  if [ -z "$trouble" ]; then
    passed "$name ($((SECONDS - start)) s)"
  else
    failed "$name" "$trouble"
  fi
}

find_devices() {  # false if there is no GPU
  echo "== devices"
  run_limited $devices_limit "${libraries[@]}" "$folder/weightpress" devices
  if [ -n "$trouble" ]; then
    failed devices "$trouble"
  elif ! grep -q '^cuda:0 ' "$scratch/printed"; then
    return 1
  elif grep -A1 '^cuda:0 ' "$scratch/printed" | grep -q 'cannot be used'; then
    failed devices "the GPU cannot be used"
  else
    passed devices
  fi
}

compress_and_verify() {
  local model=$folder/model
  [ -d "$model" ] || model=tests/cases/unaligned-and-unordered/source/chroma-tiny.safetensors
  part compress $compress_limit "${libraries[@]}" "$folder/weightpress" compress "$model" -o "$scratch/model"
  if [ -z "$trouble" ]; then
    part verify $verify_limit "${libraries[@]}" "$folder/weightpress" verify "$scratch/model" --source "$model"
  else
    skipped verify "nothing was compressed"
  fi
}

official_kernel() {  # the same unit as for the benchmark, where that is smaller
  if [ ! -f "$folder/decode.ptx" ]; then
    skipped "official kernel" "there is no $folder/decode.ptx"
    return
  fi
  benchmark_options+=(--official "$folder/decode.ptx")
  part "official kernel" $official_limit "${libraries[@]}" "$folder/bench_gpu_df11" --verify-only \
    --weights $((weights < official_weights ? weights : official_weights)) --official "$folder/decode.ptx"
}

benchmark() {
  local name goal rate
  part benchmark $benchmark_limit "${libraries[@]}" "$folder/bench_gpu_df11" --weights "$weights" --runs "$runs" \
    --json "$times" ${benchmark_options[@]+"${benchmark_options[@]}"}
  for name in HistogramEncode Decode DecodeOfficial; do
    rate=$(awk -v "name=BM_$name" 'index($1, name "/") == 1 { print $4 }' "$scratch/printed")
    [ -n "$rate" ] || continue
    case $name in
      HistogramEncode) goal=" (goal on an H200: $encode_goal)" ;;
      Decode) goal=" (goal on an H200: $decode_goal)" ;;
      *) goal='' ;;
    esac
    summary+=("         $name: $rate GB/s of BF16$goal")
  done
}

sanitize() {
  local tool sanitizer start name
  sanitizer=$(PATH="$PATH:/usr/local/cuda/bin" command -v compute-sanitizer)
  if [ -z "$sanitizer" ]; then
    skipped compute-sanitizer "it is neither on PATH nor in /usr/local/cuda/bin"
    return
  fi
  # It puts libraries of its own into the program, which may want the machine's newer ones.
  local program=("$folder/bench_gpu_df11")
  "${program[@]}" --help >/dev/null 2>&1 || program=("${libraries[@]}" "${program[@]}")
  for tool in memcheck racecheck initcheck synccheck; do
    name="compute-sanitizer $tool" start=$SECONDS
    echo; echo "== $name"
    run_limited $sanitizer_limit "$sanitizer" --tool $tool --target-processes all --error-exitcode 99 \
      "${program[@]}" --verify-only --weights $((weights < sanitized_weights ? weights : sanitized_weights))
    if grep -qi 'device not supported' "$scratch/printed"; then
      skipped "$name" "it does not support this machine's GPU"
    elif [ -n "$trouble" ]; then
      failed "$name" "$trouble"
    elif ! grep -Eq 'SUMMARY: 0 (errors|hazards)' "$scratch/printed"; then
      failed "$name" "it does not say that there were no errors"
    else
      passed "$name ($((SECONDS - start)) s)"
    fi
  done
}

run_all() {
  local line program
  scratch=$(mktemp -d) || return 2
  trap 'rm -rf "$scratch"' EXIT
  for program in weightpress bench_gpu_df11; do
    if [ ! -x "$folder/$program" ]; then
      echo "There is no $folder/$program: tests/gpu/run.sh --pack makes it, where the program is built" >&2
      return 2
    fi
  done
  date -u '+%Y-%m-%d %H:%M UTC'
  uname -srm
  if command -v nvidia-smi >/dev/null; then  # only asks
    timeout 20 nvidia-smi --format=csv \
      --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw </dev/null
  fi
  if ! find_devices; then
    echo; echo "no GPU was at hand: nothing was checked"
    return 77
  fi
  benchmark_options=()
  must_say='^ok +cuda:' part selftest $selftest_limit "${libraries[@]}" "$folder/weightpress" selftest --compare --units "$units"
  official_kernel
  benchmark
  compress_and_verify
  sanitize

  echo; echo "== summary, after $SECONDS s"
  for line in "${summary[@]}"; do echo "$line"; done
  if [ $num_failed -ne 0 ]; then echo "$num_failed failed"; return 1; fi
  echo "all that could run passed"
}

mkdir -p "$out" && rm -f "$log" "$times" || exit 2
run_all 2>&1 | tee "$log"
exit "${PIPESTATUS[0]}"
