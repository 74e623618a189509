"""`weightpress verify --engine=official`: the official decode kernel itself, interpreted, over outputs sound and broken.

The kernel is decode.ptx of the package dfloat11 (PyPI), which scripts/setup-python installs; without it these tests are
skipped. Numpy only.
"""
import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy as np

import faults
import sources
import support
from broken_runs import IS_SANITIZED, LAYOUTS, SEED, out_of
from faults import Judge
from sources import CORRUPT, DONE, IMPOSSIBLE, model_tensors
from support import bf16, mentions, reference, run, words
from test_verify_command import VerifyCase
from test_verify_faults import golden_names, golden_unit, hangs

KNOWN_SHA256 = "cc9b78f6a14c9118abf46a733390f14ef66a9c2eb4db04ded9b74183a02665cf"
VARIABLE = "WEIGHTPRESS_DECODE_PTX"
SOON = 120 if IS_SANITIZED else 15  # seconds
# What a search for the kernel goes by.
PLACES = (VARIABLE, "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONUSERBASE", "PIPX_HOME", "PYENV_ROOT",
          "WORKON_HOME", "UV_TOOL_DIR", "MAMBA_ROOT_PREFIX", "CONDA_ROOT", "COMFYUI_PATH")


def installed_kernel():
    spec = importlib.util.find_spec("dfloat11")
    path = pathlib.Path(spec.submodule_search_locations[0]) / "decode.ptx" if spec else None
    return path if path and path.exists() and sha256(path) == KNOWN_SHA256 else None


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


KERNEL = installed_kernel()


def setUpModule():
    print(f"seed {SEED}")


def place_of(failure):
    return {key: failure[key] for key in ("unit", "tensor", "kind", "chunk", "window", "weight")}


class OfficialCase(VerifyCase):
    def official(self, path, *options, code=None, kernel=KERNEL):
        report = self.verify(path, "--engine=official", "--kernel", kernel, *options, code=code)
        self.assertEqual(report["engine"], "official")
        self.assertEqual((report["kernel"]["path"], report["kernel"]["sha256"]), (str(kernel), sha256(kernel)))
        self.assertEqual(report["kernel"]["known"], kernel == KERNEL)
        return report

    def changed_kernel(self, *changes):
        """decode.ptx with (old, new) text; all places of each."""
        text = KERNEL.read_text()
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        path = self.place() / "changed.ptx"
        path.write_text(text)
        return path

    def golden_source(self, name, unit="u"):
        """(source, definition) of the unit."""
        weights = np.fromfile(support.GOLDEN / name / "weights.bf16", "<u2")
        splits = np.frombuffer(golden_unit(name)["split_positions"], "<i8")
        attributes = [f"part{index}" for index in range(len(splits) + 1)] if len(splits) else []
        names = [f"{unit}.{attribute}.weight" for attribute in attributes] or [f"{unit}.weight"]
        tensors = {tensor: bf16(part) for tensor, part in zip(names, np.split(weights, splits))}
        return self.source_file(tensors), self.define({unit: attributes})


class SoundOutputs(OfficialCase):
    def test_all_layouts_and_levels(self):
        tensors = model_tensors(2) | {"embed.weight": bf16(words(1, 60_000)), "layers.0.a.weight": bf16(words(2, 30_001))}
        source = self.source_folder({"model.safetensors": tensors})
        for layout in LAYOUTS:
            out = out_of(self.place(), layout)
            self.assert_done(self.run_on(source, "--layout", layout, out=out))
            for level in (None, "full", "sample"):
                for has_source in (True, False):
                    options = (["--level", level] if level else []) + (["--source", source] if has_source else [])
                    with self.subTest(layout=layout, options=options):
                        report = self.official(out, *options, code=DONE)
                        kernel = report["kernel"]
                        self.assertEqual(report["level"], level or "full")
                        self.assertEqual(report["seed"] is not None, level == "sample")
                        self.assertEqual((kernel["chunks"], kernel["weights"]), (report["num_chunks"], report["num_weights"]))
                        self.assertEqual((kernel["reads_past_gaps"], kernel["reads_past_output_positions"]), (3, 0))
                        self.assertGreater(kernel["lane_instructions"], 40 * kernel["weights"])
                        self.assertGreater(kernel["seconds"], 0)

    def test_samples(self):
        source, out = self.make({"embed.weight": bf16(words(1, 400_000))}, definition=self.define({"embed": []}))
        for options in ([], ["--source", source]):
            reports = []
            for threads in (1, 2):
                done = run("verify", out, "--engine=official", "--kernel", KERNEL, "--json", "--level", "sample", "--samples", 6,
                           "--seed", 3, "--threads", threads, *options)
                self.assertEqual(done.returncode, DONE, done.stdout + done.stderr)
                reports.append(json.loads(done.stdout))
            for report in reports:
                self.assertEqual((report["chunks_checked"], report["kernel"]["chunks"], report["kernel"]["reads_past_gaps"]), (6, 6, 1))
                self.assertLess(report["kernel"]["weights"], 100_000)
            self.assertEqual(*[report["kernel"]["lane_instructions"] for report in reports])

    def test_the_outcome_does_not_depend_on_threads(self):
        _, out = self.make({"embed.weight": bf16(words(1, 200_000))}, definition=self.define({"embed": []}))
        runs = [self.official(out, "--threads", threads, code=DONE)["kernel"] for threads in (1, 2, 7)]
        self.assertEqual(len({(kernel["chunks"], kernel["lane_instructions"], kernel["reads_past_gaps"]) for kernel in runs}), 1)

    def test_more_chunks_than_fit_at_once(self):
        weights = np.tile(words(1, 1_000_000), 2)
        source, out = self.make({"embed.weight": bf16(weights)}, "--fast", definition=self.define({"embed": []}))
        for options in ([], ["--source", source]):
            done = run("verify", out, "--engine=official", "--kernel", KERNEL, "--json", *options)
            self.assertEqual(done.returncode, DONE, done.stdout + done.stderr)
            report = json.loads(done.stdout)
            self.assertGreater(report["num_chunks"], 150)
            self.assertEqual(report["kernel"]["weights"], 2_000_000)
            self.assertEqual((report["kernel"]["reads_past_gaps"], report["kernel"]["reads_past_output_positions"]), (1, 0))

    def test_stored_hashes_are_checked_too(self):
        _, out = self.make(model_tensors(), "--hashes")
        self.assertEqual(self.official(out, code=DONE)["hashes"], "checked")
        path = out / "model.safetensors"
        path.write_bytes(faults.flipped(path.read_bytes(), 8 * path.stat().st_size - 1))
        self.assertEqual([failure["kind"] for failure in self.official(out, code=CORRUPT)["failures"]], ["hash"])


class GoldenUnits(OfficialCase):
    def test_all_in_one_file(self):
        """The official compressor's own bytes: two of its units hang its kernel."""
        names = golden_names()
        path = self.write_units({name: golden_unit(name) for name in names})
        start = time.monotonic()
        report = self.official(path, code=CORRUPT)
        self.assertLess(time.monotonic() - start, 3 * SOON)
        hanging = sorted(name for name in names if hangs(name))
        self.assertEqual([place_of(failure) for failure in report["failures"]],
                         [{"unit": name, "tensor": None, "kind": "padding", "chunk": 0, "window": None, "weight": None}
                          for name in hanging])
        for failure in report["failures"]:
            self.assertTrue(mentions(failure["message"], "weights are intact", "never ends", r"chunk 0\b", "hang"), failure)
        # Each sound unit's last window, and the one unit whose last code ends in a chunk of its own.
        self.assertEqual((report["kernel"]["reads_past_gaps"], report["kernel"]["reads_past_output_positions"]),
                         (len(names) - len(hanging), 1))

    def test_each_against_its_weights(self):
        for name in golden_names():
            source, definition = self.golden_source(name)
            path = self.write_units({"u": golden_unit(name)})
            with self.subTest(unit=name):
                report = self.official(path, "--source", source, "--arch", definition)
                self.assertEqual([failure["kind"] for failure in report["failures"]], ["padding"] if hangs(name) else [])
                if not hangs(name):
                    self.assertEqual(report["kernel"]["weights"], report["num_weights"])
                sample = self.official(path, "--source", source, "--arch", definition, "--level", "sample")
                self.assertEqual(sample["failures"], report["failures"])

    def test_a_unit_that_hangs_is_no_reason_to_stop(self):
        units = {"u.1": golden_unit("official_tables_hang_kernel_119"), "u.2": golden_unit("normal_20000"),
                 "u.3": golden_unit("official_tables_hang_kernel_4214"), "u.4": golden_unit("three_exponents")}
        report = self.official(self.write_units(units), code=CORRUPT)
        self.assertEqual([failure["unit"] for failure in report["failures"]], ["u.1", "u.3"])
        self.assertEqual(report["kernel"]["weights"], sum(len(units[name]["sign_mantissa"]) for name in ("u.2", "u.4")))


class Faults(OfficialCase):
    def setUp(self):
        super().setUp()
        self.random = np.random.Generator(np.random.PCG64(SEED))

    def flips(self, unit, buffer, count):
        for bit in faults.chosen(self.random, 8 * len(unit[buffer]), count):
            yield faults.Fault(f"{buffer} bit {bit}", {buffer: faults.flipped(unit[buffer], bit)})

    def verdicts(self, path, units, *options):
        """By unit: what a run says of it."""
        done = run("verify", path, "--json", *options, timeout=SOON * 10)
        self.assertIn(done.returncode, (DONE, CORRUPT), done.stderr)
        found = {name: [] for name in units}
        for failure in json.loads(done.stdout)["failures"]:
            found[failure["unit"]].append(place_of(failure))
        return found

    def test_one_bit_of_each_buffer(self):
        """Found, at the place where the judge expects it, and where our own decoder finds it."""
        name = "normal_20000"
        unit = golden_unit(name)
        judge = Judge(unit)
        cases = {}
        for buffer in ("luts", "encoded_exponent", "sign_mantissa", "output_positions", "gaps"):
            for fault in self.flips(unit, buffer, 4 if IS_SANITIZED else 14):
                cases[f"u{len(cases)}"] = fault
        path = self.write_units({key: fault.apply(unit) for key, fault in cases.items()})
        source = self.source_file({f"{key}.weight": bf16(judge.weights) for key in cases})
        with_source = ["--source", source, "--arch", self.define({r"u\d+": []})]
        official = ["--engine=official", "--kernel", KERNEL]
        num_found = 0
        for options, cpu_options in ((with_source, with_source), ([], ["--level", "structure"])):
            by_cpu = self.verdicts(path, cases, *cpu_options)
            by_kernel = self.verdicts(path, cases, *official, *options)
            for key, fault in cases.items():
                verdict = judge.judge(fault)
                with self.subTest(fault=fault.label, has_source=bool(options)):
                    if [failure["kind"] for failure in by_cpu[key]] == ["padding"]:
                        # Where tables lead astray behind the last weight, the kernel may leave them instead.
                        self.assertLessEqual({failure["kind"] for failure in by_kernel[key]}, {"padding", "kernel"})
                        continue
                    self.assertEqual(by_kernel[key], by_cpu[key])
                    num_found += len(by_kernel[key])
                    if verdict.place is None and (not options or verdict.weight is None):
                        if not verdict.undecided:
                            self.assertEqual(by_kernel[key], [])
                    else:
                        self.assertEqual(len(by_kernel[key]), 1)
                    if not options and verdict.place is not None:
                        self.assertTrue(verdict.place.fits(by_kernel[key][0]), (verdict, by_kernel[key]))
        self.assertGreater(num_found, 20)

    def test_the_first_of_many(self):
        """In a unit of many chunks, with its tensor named."""
        tensors = model_tensors(1) | {"layers.0.a.weight": bf16(words(1, 90_000)), "layers.0.b.weight": bf16(words(2, 90_000))}
        source, out = self.make(tensors)
        name, wrong = "layers.0.sign_mantissa", (100_123, 150_000)

        def change(stored):
            dtype, shape, data = stored[name]
            for weight in wrong:
                data = faults.flipped(data, 8 * weight)
            stored[name] = dtype, shape, data

        self.rewrite(support.shard_path(out, "layers.0"), change)
        cpu = self.verify(out, "--source", source, code=CORRUPT)["failures"]
        official = self.official(out, "--source", source, code=CORRUPT)["failures"]
        self.assertEqual(official, cpu)
        self.assertEqual(official[0]["weight"], wrong[0])
        self.assertTrue(mentions(official[0]["message"], r"\b10123 of tensor 'layers\.0\.b\.weight'"))
        self.official(out, code=DONE)  # signs and mantissas may be anything

    def test_chunks_at_the_limit_of_the_launch(self):
        for count in (23_550, 23_551):
            twos = 32_768 - count
            exponents = np.concatenate([np.full(count - twos, 120), np.full(twos, 121)])
            unit, _ = reference.encode_unit(support.words_of_exponents(exponents, self.random))
            buffers = {**{buffer: data.tobytes() for buffer, data in unit.items()}, "split_positions": b""}
            for options in ([], ["--level", "sample"]):
                with self.subTest(weights=count, options=options):
                    report = self.official(self.write_units({"u": buffers}), *options)
                    self.assertEqual([failure["kind"] for failure in report["failures"]], ["limit"] if count > 23_550 else [])
                    self.assertEqual(report["kernel"]["chunks"], int(count <= 23_550))

    def test_a_dense_chunk_that_is_not_sampled(self):
        """Shared memory is asked for the densest chunk of the unit, so it stops all of them."""
        dense = np.full(33_000, 0x3C4D, "<u2")
        weights = np.concatenate([words(1, 30_000), dense, words(2, 30_000)])
        unit, _ = reference.encode_unit(np.concatenate([weights, np.full(200_000, 0x3C4D, "<u2")]))
        buffers = {**{buffer: data.tobytes() for buffer, data in unit.items()}, "split_positions": b""}
        path = self.write_units({"u": buffers})
        kinds = [failure["kind"] for failure in self.verify(path, code=CORRUPT)["failures"]]
        self.assertIn("limit", kinds)
        report = self.official(path, "--level", "sample", "--samples", 2, code=CORRUPT)
        self.assertEqual([failure["kind"] for failure in report["failures"]], kinds)
        self.assertEqual((report["kernel"]["chunks"], report["chunks_checked"]), (0, 2))

    def test_positions_of_anything(self):
        """Nothing is allocated by what they say."""
        unit = golden_unit("student_t_60000")
        size = len(unit["output_positions"])
        judge = Judge(unit)
        cases = {f"u{index}": fault.changes["output_positions"]
                 for index, fault in enumerate(faults.position_faults(unit, self.random))}
        cases |= {f"r{index}": self.random.bytes(size) for index in range(20)}
        cases |= {"all": b"\xff" * size, "none": bytes(size),
                  "steps": (np.arange(size // 4, dtype="<u4") * (len(judge.weights) - 1)).astype("<u4").tobytes()}
        path = self.write_units({key: {**unit, "output_positions": data} for key, data in cases.items()})
        by_cpu = self.verdicts(path, cases, "--level", "structure")
        done, peak_mb = sources.run_measured("verify", path, "--engine=official", "--kernel", KERNEL, "--json", timeout=SOON * 10)
        self.assertEqual(done.returncode, CORRUPT, done.stderr)
        found = {failure["unit"]: place_of(failure) for failure in json.loads(done.stdout)["failures"]}
        self.assertEqual({key: [failure] for key, failure in found.items()}, by_cpu)
        if not IS_SANITIZED:
            self.assertLess(peak_mb, 100)
        # What makes no launch possible is seen wherever it is, also in chunks that are not sampled.
        impossible = set()
        for key, data in cases.items():
            steps = np.diff(np.frombuffer(data, "<u4").astype(np.int64))
            if steps.min() < 0 or steps.max() > 32_768 or data[-4:] != unit["output_positions"][-4:]:
                impossible.add(key)
        self.assertGreater(len(impossible), 20)
        sampled = self.official(path, "--level", "sample", "--samples", 1, code=CORRUPT)
        self.assertLessEqual(impossible, {failure["unit"] for failure in sampled["failures"]})

    def test_buffers_of_anything(self):
        unit = golden_unit("student_t_60000")
        units = {}
        for buffer in support.BUFFERS:
            size = len(unit[buffer])
            for number, content in enumerate([bytes(size), b"\xff" * size] + [self.random.bytes(size) for _ in range(5)]):
                if buffer != "split_positions":
                    units[f"{buffer}.u{number}"] = {**unit, buffer: content}
        report = self.official(self.write_units(units), code=CORRUPT)
        self.assertEqual({failure["unit"] for failure in report["failures"]},
                         {name for name in units if not name.startswith("sign_mantissa.")})


class OtherKernels(OfficialCase):
    """What a kernel does wrong is told, with its place."""

    def setUp(self):
        super().setUp()
        self.name = "normal_100003_three_tensors"
        self.unit = golden_unit(self.name)
        self.judge = Judge(self.unit)
        self.path = self.write_units({"u": self.unit})

    def test_a_file_that_only_differs(self):
        kernel = self.changed_kernel((".version 8.2", "// Of a friend.\n.version 8.2"))
        report = self.official(self.path, code=DONE, kernel=kernel)
        self.assertTrue(mentions(" ".join(report["notes"]), "not the known", sha256(kernel)), report["notes"])
        self.assertIn(sha256(kernel), run("verify", self.path, "--engine=official", "--kernel", kernel).stdout)
        copy = self.place() / "copy.ptx"
        shutil.copy(KERNEL, copy)
        done = run("verify", self.path, "--engine=official", "--kernel", copy, "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)["kernel"]["known"], done.stderr), (DONE, True, ""))

    def test_wrong_weights(self):
        kernel = self.changed_kernel((", 127;", ", 126;"))  # the lowest bit of each mantissa is lost
        weight = int(np.flatnonzero(np.frombuffer(self.unit["sign_mantissa"], np.uint8) & 1)[0])
        window = int(self.judge.chain.starts[weight]) // 64
        source, definition = self.golden_source(self.name)
        for options in ([], ["--source", source, "--arch", definition], ["--level", "sample"]):
            (failure,) = self.official(self.path, *options, code=CORRUPT, kernel=kernel)["failures"]
            self.assertEqual(place_of(failure), {"unit": "u", "tensor": None, "kind": "kernel", "chunk": window // 512,
                                                 "window": window, "weight": weight})
            right = int(self.judge.weights[weight])
            self.assertTrue(mentions(failure["message"], "decode.ptx", rf"weight {weight}\b", rf"0x{right:04x}", rf"0x{right - 1:04x}"))
            self.assertEqual("the source has" in failure["message"], "--source" in options)

    def test_a_later_chunk(self):
        """No block copies more than 5000 weights of its chunk out."""
        kernel = self.changed_kernel(("setp.ge.u32 \t%p54, %r358, %r331;",
                                      "min.u32 \t%r331, %r331, 5000;\n\tsetp.ge.u32 \t%p54, %r358, %r331;"),
                                     ("min.u32 \t%r337, %r336, %r76;", "min.u32 \t%r337, %r336, 5000;"))
        positions = np.frombuffer(self.unit["output_positions"], "<u4").astype(np.int64)
        chunk = int(np.flatnonzero(np.diff(positions) > 5000)[0])
        weight = int(positions[chunk]) + 5000
        (failure,) = self.official(self.path, code=CORRUPT, kernel=kernel)["failures"]
        window = int(self.judge.chain.starts[weight]) // 64
        self.assertEqual((failure["kind"], failure["chunk"], failure["window"], failure["weight"]), ("kernel", chunk, window, weight))
        self.assertIn("is not written", failure["message"])

    def test_a_chunk_far_behind(self):
        """In a slab that is not the first: the kernel sees the unit's own indices."""
        weights = np.tile(words(1, 1_000_000), 2)
        source, out = self.make({"embed.weight": bf16(weights)}, "--fast", definition=self.define({"embed": []}))
        positions = np.frombuffer(support.read_unit(out, "embed")["output_positions"], "<u4")
        chunk = 140
        self.assertGreater(len(positions), chunk + 10)
        branch = "setp.ge.u32 \t%p54, %r358, %r331;"
        kernel = self.changed_kernel((branch, f"{branch}\n\tsetp.eq.u32 \t%p55, %r3, {chunk};\n\tor.pred \t%p54, %p54, %p55;"))
        for options in ([], ["--source", source], ["--level", "sample"]):
            done = run("verify", out, "--engine=official", "--kernel", kernel, "--json", *options)
            (failure,) = json.loads(done.stdout)["failures"]
            self.assertEqual((failure["kind"], failure["chunk"], failure["window"], failure["weight"]),
                             ("kernel", chunk, 512 * chunk, positions[chunk]))
            self.assertIn("is not written", failure["message"])

    def test_accesses_that_no_buffer_has(self):
        last = len(self.unit["gaps"]) // 320 - 1
        first_luts, first_gaps = "ld.global.nc.u8 %r344, [%rd81];", "ld.global.nc.u8 \t%rs43, [%rd71];"
        cases = {"writes behind the outputs": (("[%rd210], %rs104", "[%rd210+2], %rs104"), last),
                 "reads luts before their begin": ((first_luts, first_luts.replace("]", "+-4096]") + first_luts), 0),
                 "reads gaps two bytes behind": ((first_gaps, first_gaps.replace("]", "+2]") + first_gaps), last),
                 "writes shared memory behind its end": (("[%r228], %r351", "[%r228+65536], %r351"), 0),
                 "at an odd address": (("[%rd210], %rs104", "[%rd210+1], %rs104"), 0)}
        for case, (change, chunk) in cases.items():
            with self.subTest(case=case):
                (failure,) = self.official(self.path, code=CORRUPT, kernel=self.changed_kernel(change))["failures"]
                self.assertEqual((failure["kind"], failure["chunk"]), ("kernel", chunk), failure)
                self.assertTrue(mentions(failure["message"], "decode.ptx", rf"chunk {chunk}\b"), failure["message"])

    def test_an_endless_kernel(self):
        for label, loop in (("$L__BB0_36:", "bra.uni \t$L__BB0_36;"), ("$L__BB0_24:", "bar.sync \t0;\n\tbra.uni \t$L__BB0_24;")):
            kernel = self.changed_kernel((label, f"{label}\n\t{loop}"))
            start = time.monotonic()
            done = run("verify", self.path, "--engine=official", "--kernel", kernel, "--json")
            with self.subTest(loop=loop):
                self.assertLess(time.monotonic() - start, SOON)
                (failure,) = json.loads(done.stdout)["failures"]
                self.assertEqual((failure["kind"], failure["chunk"]), ("kernel", 0))
                self.assertTrue(mentions(failure["message"], "does not get through chunk 0", "thread"), failure["message"])

    def test_what_is_no_kernel(self):
        place = self.place()
        (place / "text.ptx").write_text("Not a kernel.\n")
        (place / "empty.ptx").write_bytes(b"")
        (place / "binary.ptx").write_bytes(bytes(range(256)) * 100)
        (place / "folder.ptx").mkdir()
        os.mkfifo(place / "pipe.ptx")
        files = [place / "text.ptx", place / "empty.ptx", place / "binary.ptx", place / "folder.ptx", place / "pipe.ptx",
                 place / "missing.ptx", "/dev/zero", self.changed_kernel((".entry decode(", ".entry encode(")),
                 self.changed_kernel((",\n\t.param .u32 decode_param_8\n", "\n"), ("ld.param.u32 \t%r81, [decode_param_8];", "")),
                 self.changed_kernel(("bfe.u64", "frobnicate.u64"))]
        for path in files:
            with self.subTest(file=str(path)):
                self.refused_to_verify(IMPOSSIBLE, self.path, "--engine=official", "--kernel", path, says=[str(path)])


class Search(OfficialCase):
    def setUp(self):
        super().setUp()
        self.home = self.place("home")
        self.path = self.write_units({"u": golden_unit("three_exponents")})
        self.env = {key: value for key, value in os.environ.items() if key not in PLACES}
        self.env |= {"HOME": str(self.home), "PATH": str(self.work / "bin")}
        # What the system itself has is found last.
        done = run("verify", self.path, "--engine=official", "--json", env=self.env, cwd=self.work)
        self.found_in_system = done.returncode == DONE

    def search(self, *options, **variables):
        return run("verify", self.path, "--engine=official", "--json", *options, env=self.env | variables, cwd=self.work)

    def put(self, path, content=None):
        path = self.home / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(KERNEL.read_bytes() if content is None else content)
        return path

    def assert_found(self, path, done):
        self.assertEqual(done.returncode, DONE, done.stderr)
        kernel = json.loads(done.stdout)["kernel"]
        self.assertEqual((kernel["path"], kernel["known"]), (str(path), True))

    def test_nothing_is_found(self):
        if self.found_in_system:
            self.skipTest("the system has the package dfloat11")
        done = self.search()
        self.assertEqual((done.returncode, done.stdout), (IMPOSSIBLE, ""))
        self.assertRegex(done.stderr, "^weightpress: [^\n]+\n$")
        self.assertTrue(mentions(done.stderr, "not found", "dfloat11", VARIABLE, "Python", "ComfyUI", "pip install", "--kernel"), done.stderr)
        no_home = {key: value for key, value in self.env.items() if key not in ("HOME", "PATH")}
        self.assertEqual(run("verify", self.path, "--engine=official", env=no_home, cwd=self.work).returncode, IMPOSSIBLE)

    def test_installed_packages(self):
        package = pathlib.Path("lib/python3.12/site-packages/dfloat11/decode.ptx")
        for place, variables in ((pathlib.Path(".local") / package, {}), (pathlib.Path("env") / package, {"VIRTUAL_ENV": str(self.home / "env")}),
                                 (pathlib.Path("conda") / package, {"CONDA_PREFIX": str(self.home / "conda")}),
                                 (pathlib.Path("tools") / package, {"PATH": f"/nothing:{self.home}/tools/bin"}),
                                 (".pyenv/versions/3.12.1" / package, {}),
                                 ("site/dfloat11/decode.ptx", {"PYTHONPATH": f"/nothing:{self.home}/site"})):
            path = self.put(place)
            with self.subTest(place=str(place)):
                self.assert_found(path, self.search(**variables))
            path.unlink()

    def test_comfyui(self):
        for place, variables in (("ComfyUI/custom_nodes/ComfyUI-DFloat11/dfloat11/decode.ptx", {}),
                                 ("ComfyUI/custom_nodes/ComfyUI-DFloat11-Extended/decode.ptx", {}),
                                 ("elsewhere/custom_nodes/nodes/dfloat11_decode.ptx", {"COMFYUI_PATH": str(self.home / "elsewhere")}),
                                 ("elsewhere/venv/lib/python3.11/site-packages/dfloat11/decode.ptx",
                                  {"COMFYUI_PATH": str(self.home / "elsewhere")})):
            path = self.put(place)
            with self.subTest(place=place):
                self.assert_found(path, self.search(**variables))
            path.unlink()

    def test_the_variable(self):
        self.put(".local/lib/python3.12/site-packages/dfloat11/decode.ptx")
        path = self.put("mine.ptx")
        self.assert_found(path, self.search(**{VARIABLE: str(path)}))
        other = self.put("other.ptx", KERNEL.read_bytes() + b"\n")
        done = self.search(**{VARIABLE: str(other)})
        self.assertEqual((done.returncode, done.stdout), (IMPOSSIBLE, ""))
        self.assertTrue(mentions(done.stderr, VARIABLE, "--kernel", sha256(other)), done.stderr)
        self.assertEqual(self.search(**{VARIABLE: str(self.home / "missing.ptx")}).returncode, IMPOSSIBLE)
        # The option goes before it.
        self.assert_found(path, self.search("--kernel", path, **{VARIABLE: str(other)}))

    def test_another_file_is_passed_over(self):
        other = self.put(".local/lib/python3.12/site-packages/dfloat11/decode.ptx", KERNEL.read_bytes().replace(b"127", b"126"))
        if not self.found_in_system:
            done = self.search()
            self.assertEqual(done.returncode, IMPOSSIBLE)
            self.assertTrue(mentions(done.stderr, str(other), "another file"), done.stderr)
        path = self.put("ComfyUI/custom_nodes/dfloat11/decode.ptx")
        done = self.search()
        self.assert_found(path, done)
        self.assertTrue(mentions(done.stderr, "^note: ", str(other), sha256(other), "passed over"), done.stderr)


class Trouble(OfficialCase):
    def test_options_that_do_not_go_together(self):
        source, out = self.make()
        official = ["--engine=official", "--kernel", KERNEL]
        self.refused_to_verify(IMPOSSIBLE, out, *official, "--level", "structure", says=["structure", "sample", "full"])
        self.refused_to_verify(IMPOSSIBLE, out, *official, "--level", "structure", "--source", source)
        self.refused_to_verify(IMPOSSIBLE, out, "--kernel", KERNEL, says=["--kernel", "--engine"])
        self.refused_to_verify(IMPOSSIBLE, out, "--engine", "cpu", "--kernel", KERNEL)
        self.refused_to_verify(IMPOSSIBLE, out, "--engine", "cuda", says=["--engine"])
        self.refused_to_verify(IMPOSSIBLE, source, *official, says=["no DF11 units"])
        for options in (["--engine", "cpu"], ["--engine", "cpu", "--source", source]):
            report = self.verify(out, *options, code=DONE)
            self.assertEqual((report["engine"], report["kernel"]), ("cpu", None))

    def test_source_that_does_not_fit(self):
        _, out = self.make()
        other = model_tensors() | {"layers.1.b.weight": bf16(words(21, 201))}
        report = self.official(out, "--source", self.source_file(other), code=CORRUPT)
        self.assertEqual([(failure["unit"], failure["kind"]) for failure in report["failures"]], [("layers.1", "shape")])
        self.assertEqual(report["kernel"]["weights"], report["num_weights"])  # the kernel runs against our own decoder there

    def test_memory(self):
        """A unit of 100 million weights, by samples, and six million of it in whole."""
        if IS_SANITIZED:
            self.skipTest("a sanitizer's own memory counts too")
        block = words(1, 1_000_000)
        definition = self.define({"embed": []})
        for count, options in ((100, ["--level", "sample", "--samples", 40]), (6, [])):
            source, out = self.make({"embed.weight": bf16(np.tile(block, count))}, "--fast", definition=definition)
            for more in ([], ["--source", source]):
                done, peak_mb = sources.run_measured("verify", out, "--engine=official", "--kernel", KERNEL, "--json", *options, *more,
                                                     timeout=120)
                self.assertEqual(done.returncode, DONE, done.stderr)
                self.assertLess(peak_mb, 45, (count, more))

    def test_an_interrupted_run(self):
        _, out = self.make({"embed.weight": bf16(np.tile(words(1, 1_000_000), 40))}, "--fast", definition=self.define({"embed": []}))
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen([support.PROGRAM, "verify", out, "--engine=official", "--kernel", KERNEL, "--progress", "bar"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            with process.stdout, process.stderr:
                self.assertTrue(process.stderr.read(1))  # it has begun
                time.sleep(0.3)
                self.assertIsNone(process.poll())
                start = time.monotonic()
                process.send_signal(number)
                self.assertEqual(process.wait(SOON), 130)
                self.assertLess(time.monotonic() - start, 2)
                self.assertIn(b"interrupted", process.stderr.read())


if __name__ == "__main__":
    if KERNEL is None:
        print("skipped: this Python has no package dfloat11 with the known decode.ptx: run scripts/setup-python")
        sys.exit(77)
    unittest.main(verbosity=2)
