"""Thousands of faults, one a unit, through `weightpress verify`: each is found at its place or proven harmless.

What must come of a fault is worked out in faults.py. Units with a fault each are put into one file by the hundred, beside
sound ones. WEIGHTPRESS_FAULTS=long tries many times as many. Standard library and numpy only.
"""
import collections
import json
import os
import pathlib
import struct
import tempfile
import unittest

import numpy as np

import faults
import support
import test_real_headers
from faults import Fault, Judge
from support import BUFFERS, bf16, reference, run

SEED = int(os.environ.get("WEIGHTPRESS_SEED", "20240611"))
IS_LONG = os.environ.get("WEIGHTPRESS_FAULTS") == "long"
MAX_PARTS = 4


def setUpModule():
    print(f"seed {SEED}{', long' if IS_LONG else ''}")


def golden_unit(name):
    """The buffers that the official compressor made; the safe tables where its table builder fails."""
    folder = support.GOLDEN / name
    luts = folder / "luts.u8"
    return {"luts": (luts if luts.exists() else folder / "luts_safe.u8").read_bytes(),
            "output_positions": (folder / "output_positions.u32").read_bytes(),
            "split_positions": (folder / "split_positions.i64").read_bytes(),
            **{buffer: (folder / f"{buffer}.u8").read_bytes() for buffer in ("encoded_exponent", "sign_mantissa", "gaps")}}


def golden_names():
    return [unit["name"] for unit in json.loads((support.GOLDEN / "index.json").read_text())]


def hangs(name):
    return not json.loads((support.GOLDEN / name / "meta.json").read_text()).get("official_kernel_terminates", True)


def source_tensors(name, unit, weights):
    """The tensors that the unit is made of."""
    splits = np.frombuffer(unit["split_positions"], "<i8")
    if not len(splits):
        return {f"{name}.weight": bf16(weights)}
    return {f"{name}.part{index}.weight": bf16(part) for index, part in enumerate(np.split(weights, splits))}


def unit_name(unit, index):
    """Says of how many tensors the unit is made: the definition of these tests goes by it."""
    return f"of{len(unit['split_positions']) // 8 + 1}.u{index}"


PATTERNS = {r"of1\.u\d+": [], **{rf"of{count}\.u\d+": [f"part{part}" for part in range(count)] for count in range(2, MAX_PARTS)}}


def verify(path, *options):
    """The JSON of a run that ends with 0 or 1."""
    done = run("verify", path, "--json", "--threads", 1, "--progress", "none", *options)
    assert done.returncode in (0, 1), f"exit code {done.returncode}: {done.stderr[-2000:]}"
    report = json.loads(done.stdout)
    assert report["ok"] == (done.returncode == 0) == (not report["failures"]), (done.returncode, report["ok"], report["failures"][:3])
    return report


def structure_complaint(fault, verdict, failures):
    """What is wrong about what `--level structure` said of a unit, or None."""
    del fault
    if verdict.place is None:
        if not failures or (verdict.undecided and {failure["kind"] for failure in failures} == {"table"}):
            return None
        return "is sound as far as can be seen"
    if len(failures) != 1:
        return f"should fail once, with {verdict.place}"
    return None if verdict.place.fits(failures[0]) else f"should fail with {verdict.place}"


def source_complaint(fault, verdict, failures):
    """The same with the source."""
    if verdict.harmless:
        return structure_complaint(fault, verdict, failures)
    if len(failures) != 1:
        return f"should fail once, with {verdict}"
    (failure,) = failures
    if fault.is_bit_flip and verdict.weight_window is not None and (
            failure["window"] not in (verdict.weight_window, verdict.weight_window + 1)):
        return f"should fail with {verdict}: the source tells the window"
    if verdict.splits_differ and failure["kind"] in ("split", "header"):
        return None
    if verdict.place is not None and verdict.place.fits(failure) and not (
            "padding" in verdict.place.kinds and verdict.weight is not None):
        return None
    if failure["kind"] == "weight" and verdict.weight is not None:
        place = (failure["weight"], failure["window"], failure["chunk"])
        if place == (verdict.weight, verdict.weight_window, verdict.weight_window // faults.WINDOWS):
            return None
    if verdict.undecided and failure["kind"] == "table":
        return None
    return f"should fail with {verdict}"


class Batches:
    """Collects units with faults, and has them verified when there are many."""
    MAX_UNITS, MAX_BYTES = 400, 40_000_000

    def __init__(self, test, work):
        self.test, self.work = test, pathlib.Path(work)
        self.definition = support.write_definition(self.work / "arch.json", PATTERNS)
        self.counts, self.num_runs, self.units, self.size = collections.Counter(), 0, {}, 0
        self.complaints = []

    def add(self, judge, fault, with_source):
        unit = fault.apply(judge.unit)
        name = unit_name(judge.unit, len(self.units))
        self.units[name] = (judge, fault, judge.judge(fault), with_source)
        self.size += sum(len(data or b"") for data in unit.values())
        if len(self.units) >= self.MAX_UNITS or self.size >= self.MAX_BYTES:
            self.flush()

    def check(self, report, units, complaint, how):
        by_unit = collections.defaultdict(list)
        for failure in report["failures"]:
            by_unit[failure["unit"]].append(failure)
        self.test.assertLessEqual(set(by_unit), set(units), "units are named that there are not")
        self.test.assertEqual(report["num_units"], len(units))
        for name in units:
            _, fault, verdict, _ = self.units[name]
            wrong = complaint(fault, verdict, by_unit[name])
            if wrong:
                self.complaints.append(f"{how}: {self.label}: {fault.label}: {by_unit[name]}: {wrong}")
            self.counts[by_unit[name][0]["kind"] if by_unit[name] else "accepted"] += 1

    def flush(self):
        if not self.units:
            return
        output, source = self.work / "output.safetensors", self.work / "source.safetensors"
        tensors = {}
        for name, (judge, fault, _, _) in self.units.items():
            tensors |= faults.tensors_of(name, fault.apply(judge.unit), fault.shapes)
        reference.write_safetensors(output, tensors)
        self.check(verify(output, "--level", "structure"), list(self.units), structure_complaint, "structure")

        chosen = [name for name, (_, _, verdict, wanted) in self.units.items() if wanted or verdict.place is None]
        tensors, sources = {}, {}
        for name in chosen:
            judge, fault, _, _ = self.units[name]
            tensors |= faults.tensors_of(name, fault.apply(judge.unit), fault.shapes)
            sources |= source_tensors(name, judge.unit, judge.weights)
        if chosen:
            reference.write_safetensors(output, tensors)
            reference.write_safetensors(source, sources)
            self.check(verify(output, "--source", source, "--arch", self.definition), chosen, source_complaint, "with source")
        self.num_runs += 1 + bool(chosen)
        self.units, self.size = {}, 0

    def finish(self):
        self.flush()
        print(f"{sum(self.counts.values())} verdicts in {self.num_runs} runs: {dict(self.counts.most_common())}")
        if self.complaints:
            self.test.fail("\n".join([f"{len(self.complaints)} complaints", *self.complaints[:20]]))


class VerifyFaults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        self.random = np.random.Generator(np.random.PCG64(SEED))


class TheJudge(VerifyFaults):
    """He has to be right himself: against the slow model, which decodes but does not check."""

    def test_sound_units_are_sound(self):
        for name in golden_names():
            with self.subTest(unit=name):
                judge = Judge(golden_unit(name))
                self.assertTrue((judge.weights == np.fromfile(support.GOLDEN / name / "weights.bf16", "<u2")).all())
                verdict = judge.judge(Fault("none", {}))
                self.assertEqual(None if verdict.harmless else verdict.place.kinds, {"padding"} if hangs(name) else None)

    def test_what_the_slow_model_encodes_is_sound(self):
        for size in (1, 2, 31, 33, 5000, 40_000):
            exponents = 120 + self.random.geometric(0.5, size).clip(1, 30)
            unit, _ = reference.encode_unit(support.words_of_exponents(exponents, self.random))
            unit = {**{buffer: data.tobytes() for buffer, data in unit.items()}, "split_positions": b""}
            verdict = Judge(unit).judge(Fault("none", {}))
            self.assertTrue(verdict.harmless or verdict.place.kinds == {"padding"}, (size, verdict))

    def test_the_first_wrong_weight_is_the_slow_models(self):
        compared = 0
        for name in ("with_zeros_and_subnormals", "normal_20000", "bits_multiple_of_8", "fibonacci_18"):
            unit = golden_unit(name)
            judge = Judge(unit)
            kinds = (faults.stream_flips(unit, self.random, 40), faults.luts_faults(unit, self.random, 60),
                     faults.sign_mantissa_flips(unit, self.random, 10), faults.swaps(unit))
            for fault in (fault for faults_of_kind in kinds for fault in faults_of_kind):
                verdict = judge.judge(fault)
                try:
                    weights, _, _ = reference.decode_unit(fault.apply(unit))
                except (ValueError, IndexError):
                    self.assertIsNotNone(verdict.place, fault.label)
                    continue
                different = np.flatnonzero(weights != judge.weights)
                if verdict.weight is not None:
                    self.assertEqual(verdict.weight, different[0], fault.label)
                elif verdict.place is None:
                    self.assertEqual(len(different), 0, fault.label)
                compared += 1
        self.assertGreater(compared, 200)

    def test_only_the_bits_that_changed_are_decoded_again(self):
        unit = golden_unit("normal_20000")
        judge = Judge(unit)
        for fault in [*faults.stream_flips(unit, self.random, 100), *faults.swaps(unit)]:
            if fault.bits:
                stream = fault.apply(unit)["encoded_exponent"]
                whole = faults.Chain.of(unit["luts"], stream)
                part = judge.chain.with_changed_bits(unit["luts"], stream, *fault.bits)
                self.assertTrue(np.array_equal(whole.starts, part.starts) and np.array_equal(whole.exponents, part.exponents))
                self.assertEqual((whole.stop, whole.failed), (part.stop, part.failed))


class GoldenUnits(VerifyFaults):
    def test_sound_units(self):
        """Alone, all in one file, a file each in a folder, and cut into files without regard to units."""
        units = {name: golden_unit(name) for name in golden_names()}
        tensors = {name: faults.tensors_of(f"golden.{name}", unit) for name, unit in units.items()}
        want = sorted(f"golden.{name}" for name in units if hangs(name))
        self.assertEqual(len(want), 2)
        forms = {"one.safetensors": [{key: tensor for part in tensors.values() for key, tensor in part.items()}],
                 "folder": list(tensors.values())}
        everything = list(forms["one.safetensors"][0].items())
        forms["scattered"] = [dict(everything[index::3]) for index in range(3)]
        for form, files in forms.items():
            path = self.work / form
            if form == "one.safetensors":
                reference.write_safetensors(path, files[0])
            else:
                path.mkdir()
                for index, content in enumerate(files):
                    reference.write_safetensors(path / f"{index}.safetensors", content)
            with self.subTest(form=form):
                report = verify(path)
                self.assertEqual(sorted(failure["unit"] for failure in report["failures"]), want)
                self.assertEqual({failure["kind"] for failure in report["failures"]}, {"padding"})
                self.assertEqual(report["num_units"], len(units))
                self.assertEqual(report["num_weights"], sum(len(unit["sign_mantissa"]) for unit in units.values()))

    def test_one_fault_in_a_model_names_one_unit(self):
        names = [name for name in golden_names() if not hangs(name)]
        units = {f"golden.{name}": golden_unit(name) for name in names}
        (self.work / "folder").mkdir()
        for name, unit in units.items():
            judge = Judge(unit)
            fault = next(fault for fault in faults.gap_flips(unit, self.random, 40) if judge.judge(fault).place)
            tensors = {other: faults.tensors_of(other, fault.apply(unit) if other == name else content)
                       for other, content in units.items()}
            reference.write_safetensors(self.work / "one.safetensors", {k: v for part in tensors.values() for k, v in part.items()})
            for index, content in enumerate(tensors.values()):
                reference.write_safetensors(self.work / "folder" / f"{index}.safetensors", content)
            for path in (self.work / "one.safetensors", self.work / "folder"):
                with self.subTest(unit=name, path=path.name):
                    (failure,) = verify(path)["failures"]
                    self.assertEqual((failure["unit"], failure["tensor"]), (name, None))
                    self.assertTrue(judge.judge(fault).place.fits(failure), failure)

    def try_faults(self, kinds):
        """kinds: {name: function of (unit, is small) to faults}. All golden units."""
        batches = Batches(self, self.work)
        for name in golden_names():
            unit = golden_unit(name)
            judge = Judge(unit)
            batches.label = name
            batches.add(judge, Fault("none", {}), True)
            for make in kinds:
                for index, fault in enumerate(make(unit, len(unit["sign_mantissa"]))):
                    batches.add(judge, fault, index % 4 == 0)
            batches.flush()
        batches.finish()

    @staticmethod
    def amount(size, small, medium, large):
        """How many faults of a unit of so many weights."""
        if IS_LONG:
            small, medium, large = 20 * small, 10 * medium, 5 * large
        return small if size < 1200 else medium if size < 25_000 else large

    def test_stream(self):
        self.try_faults([lambda unit, size: faults.stream_flips(unit, self.random, self.amount(size, 2200, 250, 60)),
                         lambda unit, size: faults.swaps(unit)])

    def test_gaps_and_positions(self):
        self.try_faults([lambda unit, size: faults.gap_flips(unit, self.random, self.amount(size, 320, 200, 60)),
                         lambda unit, size: faults.position_faults(unit, self.random)])

    def test_lookup_tables(self):
        self.try_faults([lambda unit, size: faults.luts_faults(unit, self.random, self.amount(size, 1100, 250, 40))])

    def test_signs_mantissas_and_splits(self):
        self.try_faults([lambda unit, size: faults.sign_mantissa_flips(unit, self.random, self.amount(size, 200, 40, 10)),
                         lambda unit, size: faults.split_faults(unit, self.random)])

    def test_sizes_and_exchanged_buffers(self):
        others = [golden_unit(name) for name in ("bits_multiple_of_8", "normal_20000", "three_exponents")]
        self.try_faults([lambda unit, size: faults.resized(unit),
                         lambda unit, size: (fault for other in others for fault in faults.exchanged(unit, other))])

    def test_every_byte_of_the_smallest_units(self):
        """Of every byte but those of sign_mantissa, many of the 255 wrong values."""
        batches = Batches(self, self.work)
        for name in ("one_weight", "three_exponents") if IS_LONG else ("one_weight",):
            unit = golden_unit(name)
            judge = Judge(unit)
            batches.label = name
            step = 5 if IS_LONG else 16
            for buffer in ("luts", "encoded_exponent", "gaps", "output_positions"):
                for at in range(len(unit[buffer])):
                    for mask in range(1 + at % step, 256, step):
                        changed = bytearray(unit[buffer])
                        changed[at] ^= mask
                        batches.add(judge, Fault(f"{buffer} byte {at} ^ {mask:#x}", {buffer: bytes(changed)}), False)
        batches.finish()


class CutFiles(VerifyFaults):
    def test_files_cut_or_lengthened_anywhere(self):
        unit = golden_unit("bits_multiple_of_64")
        path = self.work / "unit.safetensors"
        reference.write_safetensors(path, faults.tensors_of("u", unit))
        content = path.read_bytes()
        sizes = {0, 1, 7, 8, 9, len(content) - 1, *self.random.integers(10, len(content), 200 if IS_LONG else 30).tolist()}
        for cut in [content[:size] for size in sorted(sizes)] + [content + bytes(extra) for extra in (1, 7, 8, 4096)]:
            path.write_bytes(cut)
            for options in ([], ["--json"]):
                done = run("verify", path, *options)
                self.assertEqual(done.returncode, 1, f"{len(cut)} of {len(content)} bytes: {done.stderr}")
                self.assertTrue(support.mentions(done.stdout + done.stderr, r"unit\.safetensors"), done.stderr)

    def test_header_bytes(self):
        """A damaged header is refused or names other tensors; never is the unit called whole and sound under its name."""
        unit = golden_unit("bits_multiple_of_64")
        path = self.work / "unit.safetensors"
        reference.write_safetensors(path, faults.tensors_of("u", unit))
        content = path.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        for at in range(8 + length) if IS_LONG else sorted(self.random.choice(8 + length, 150, replace=False).tolist()):
            changed = bytearray(content)
            changed[at] ^= 1 << int(self.random.integers(8))
            path.write_bytes(changed)
            done = run("verify", path, "--json")
            self.assertIn(done.returncode, (0, 1, 2), done.stderr)
            if done.returncode == 0:
                # Still the same six tensors: white space, a name changed throughout, or none of it.
                tensors, _ = reference.read_safetensors(path)
                names = {name.rsplit(".", 1)[-1] for name in tensors}
                self.assertLessEqual(set(BUFFERS), names, bytes(changed[:8 + length]))


def patch(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


class CompressedModels(VerifyFaults):
    """What `compress` makes of models with the names of real ones: faults in place, in many units at a time."""
    MODELS = ("phi-4", "flux2-comfyui", "chroma-diffusers")

    def make(self, header):
        folder = self.work / header
        folder.mkdir()
        case = test_real_headers.header_case(header)
        layout = test_real_headers.load_definition(case.definition)["layout"]
        source, _ = test_real_headers.make_source(folder, case, layout)
        out = folder / "out"
        done = run("compress", source, "-o", out, "--threads", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        places, units, kept = {}, collections.defaultdict(dict), {}
        for path in sorted(out.glob("*.safetensors")):
            content = path.read_bytes()
            (length,) = struct.unpack("<Q", content[:8])
            for name, entry in json.loads(content[8:8 + length]).items():
                if name == "__metadata__":
                    continue
                begin, end = (8 + length + offset for offset in entry["data_offsets"])
                places[name] = (path, begin, end)
                unit, _, buffer = name.rpartition(".")
                if buffer in BUFFERS:
                    units[unit][buffer] = content[begin:end]
                else:
                    kept[name] = content[begin:end]
        return source, out, units, kept, places

    def faults_of(self, unit):
        kinds = [faults.stream_flips(unit, self.random, 4), faults.gap_flips(unit, self.random, 20),
                 faults.position_faults(unit, self.random), faults.luts_faults(unit, self.random, 4),
                 faults.sign_mantissa_flips(unit, self.random, 4), faults.split_faults(unit, self.random), faults.swaps(unit)]
        found = [fault for kind in kinds for fault in kind
                 if all(data is not None and len(data) == len(unit[buffer]) for buffer, data in fault.changes.items())]
        return [found[index] for index in self.random.permutation(len(found))]

    def expect(self, report, verdicts, complaint):
        by_unit = collections.defaultdict(list)
        for failure in report["failures"]:
            by_unit[failure["unit"]].append(failure)
        complaints = []
        for name, (fault, verdict) in verdicts.items():
            found = by_unit.pop(name, [])
            wrong = complaint(fault, verdict, found)
            if verdict.splits_differ and verdict.place is None:  # weightpress.json and the source both know better
                wrong = None if [failure["kind"] for failure in found] == ["split"] else "should fail with split"
            if wrong:
                complaints.append(f"{name}: {fault.label}: {found}: {wrong}")
        self.assertEqual(by_unit, {}, "no fault was made there")
        self.assertEqual(complaints, [])

    def test_models(self):
        num_faults = 0
        for header in self.MODELS:
            source, out, units, kept, places = self.make(header)
            self.assertEqual(verify(out)["failures"], [])
            whole = verify(out, "--source", source)
            self.assertEqual((whole["failures"], whole["num_units"], whole["num_tensors"]), ([], len(units), len(kept)))
            judges = {name: Judge(unit) for name, unit in units.items()}
            remaining = {name: self.faults_of(unit) for name, unit in units.items()}
            for _ in range(40 if IS_LONG else 6):
                verdicts = {}
                for name, judge in judges.items():
                    if not remaining[name]:
                        continue
                    fault = remaining[name].pop()
                    verdicts[name] = fault, judge.judge(fault)
                    for buffer, data in fault.changes.items():
                        patch(places[f"{name}.{buffer}"][0], places[f"{name}.{buffer}"][1], data)
                with self.subTest(model=header, level="structure"):
                    self.expect(verify(out), verdicts, structure_complaint)
                with self.subTest(model=header, level="full"):
                    self.expect(verify(out, "--source", source), verdicts, source_complaint)
                for name, (fault, _) in verdicts.items():
                    for buffer in fault.changes:
                        patch(places[f"{name}.{buffer}"][0], places[f"{name}.{buffer}"][1], units[name][buffer])
                num_faults += len(verdicts)
            self.assertEqual(verify(out)["failures"], [], "the faults were taken back")
        print(f"{num_faults} faults in compressed models")
        self.assertGreater(num_faults, 300)

    def test_kept_tensors(self):
        for header in self.MODELS:
            source, out, _, kept, places = self.make(header)
            names = sorted(name for name, data in kept.items() if data)
            for name in names[::max(1, len(names) // 4)]:
                path, begin, _ = places[name]
                bit = int(self.random.integers(8 * len(kept[name])))
                patch(path, begin, faults.flipped(kept[name], bit))
                with self.subTest(model=header, tensor=name):
                    (failure,) = verify(out, "--source", source)["failures"]
                    self.assertEqual((failure["unit"], failure["tensor"], failure["kind"]), (None, name, "tensor"))
                    self.assertEqual(verify(out)["failures"], [])
                patch(path, begin, kept[name])


if __name__ == "__main__":
    unittest.main(verbosity=2)
