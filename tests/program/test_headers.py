"""Headers of other writers, and headers that no writer should have written.

What is legal gives the output that the plain file gives; what is not is exit code 1 and names the file, the tensor and the fault.
What is legal is what the safetensors package (0.5) reads, but for names that stand twice: it takes the last.
Standard library and numpy only.
"""
import json
import re
import unittest

import support
from sources import (CORRUPT, DTYPE_BITS, IMPOSSIBLE, SourceCase, compact, expected_output, file_bytes,
                     filled, model_tensors, pack, read_output, run_measured, some_bytes)
from support import bf16, words

TENSORS = model_tensors(1)
WANT = expected_output(TENSORS)
HEADER, DATA = pack(TENSORS)
TEXT = compact(HEADER)
ENTRY = compact(HEADER["norm.weight"])  # of the tensor that the faults below are in
MEMBER = f'"norm.weight":{ENTRY}'
BYTES = len(TENSORS["norm.weight"][2])
BEGIN, END = HEADER["norm.weight"]["data_offsets"]


def with_member(text, **options):
    """The file with the text of one tensor's member replaced."""
    assert TEXT.count(MEMBER) == 1
    return file_bytes(TEXT.replace(MEMBER, text), DATA, **options)


def with_entry(old, new):
    """The file with a part of that tensor's entry replaced."""
    assert ENTRY.count(old) == 1, old
    return with_member(f'"norm.weight":{ENTRY.replace(old, new)}')


def shuffled():
    """Entries in another order than the data, the keys of an entry too."""
    names = sorted(HEADER, key=lambda name: name[::-1])
    return compact({name: dict(reversed(HEADER[name].items())) for name in names})


LEGAL = {
    # ohdearquant/lattice#1468
    "indented": file_bytes(json.dumps(HEADER, indent=2), DATA),
    "tabs and line breaks of Windows": file_bytes(json.dumps(HEADER, indent="\t").replace("\n", "\r\n"), DATA),
    "spaces after it": file_bytes(TEXT + " " * 1000, DATA),
    "line breaks after it": file_bytes(TEXT + "\n\r\t\n" * 7, DATA),
    "not padded, so that no weight is aligned": file_bytes(TEXT + " " * (-len(TEXT) % 2 + 1), DATA, pad=False),
    "entries and keys in another order": file_bytes(shuffled(), DATA),
    "ASCII only": file_bytes(json.dumps(HEADER), DATA),
    # metadata
    "empty metadata": file_bytes('{"__metadata__":{},' + TEXT[1:], DATA),
    "null metadata": file_bytes('{"__metadata__":null,' + TEXT[1:], DATA),
    "metadata last": file_bytes(TEXT[:-1] + ',"__metadata__":{"format":"pt"}}', DATA),
    "metadata with a thumbnail": file_bytes('{"__metadata__":{"modelspec.thumbnail":"data:image/jpeg;base64,' + "A" * 60_000 +
                                            '"},' + TEXT[1:], DATA),
    "metadata of every character": file_bytes(
        compact({"__metadata__": {"a\u0000\n\x1b\u202e\u00e9\U0001f600": "\u0000\"\\/\u2028\ufffd", "": ""}, **HEADER}), DATA),
    "metadata like a tensor": file_bytes('{"__metadata__":{"dtype":"BF16","shape":"[1]","data_offsets":"[0,2]"},' + TEXT[1:],
                                         DATA),
    # keys that other writers add
    "unknown keys in an entry": with_member(
        f'"norm.weight":{{"requires_grad":false,"stride":[1],"x":{{"y":[null,1.5,{{}}]}},{ENTRY[1:]}'),
    "escapes in a name": with_member(MEMBER.replace("norm", "n\\u006frm").replace(".weight", "\\u002ewe\\u0069ght")),
    "escapes in keys and values": with_member(MEMBER.replace("dtype", "d\\u0074ype").replace("BF16", "\\u0042F16")),
}

# kind: (file, what the message says besides the file's name)
NORM = r"norm\.weight"
FAULTS = {
    # what JSON is not
    "trailing comma": (file_bytes(TEXT[:-1] + ",}", DATA), "json"),
    "comment": (file_bytes("{/* by hand */" + TEXT[1:], DATA), "json"),
    "comment after it": (file_bytes(TEXT + " // end", DATA), "json"),
    "two objects": (file_bytes(TEXT + "{}", DATA), "json"),
    "text after it": (file_bytes(TEXT + " x", DATA), "json"),
    "NUL bytes as padding": (file_bytes(TEXT + "\0" * 8, DATA), "nul|json"),
    "NUL and more after it": (file_bytes(TEXT + "\0{}", DATA), "nul|json"),
    "form feed": (file_bytes("{\f" + TEXT[1:], DATA), "json"),
    "single quotes": (file_bytes(TEXT.replace('"', "'"), DATA), "json"),
    "no quotes": (with_member("norm.weight:" + ENTRY), "json"),
    "cut short": (file_bytes(TEXT[:-1], DATA), "json"),
    "brace missing": (with_member(MEMBER[:-1]), "json|" + NORM),
    "list": (file_bytes("[" + TEXT + "]", DATA), "object"),
    "string": (file_bytes(compact(TEXT), DATA), "object"),
    "number": (file_bytes("1", DATA), "object|json"),
    "null": (file_bytes("null", DATA), "object|json"),
    "nothing": (file_bytes("", DATA), "json|zero|empty"),
    "only spaces": (file_bytes(" " * 80, DATA), "json"),
    "byte order mark": (file_bytes("\ufeff" + TEXT, DATA), "byte order mark|bom|json"),
    "UTF-16": (file_bytes(TEXT.encode("utf-16-le"), DATA), "nul|json|utf"),
    "Latin-1": (with_member('"gr\u00fc\u00df":' + ENTRY).replace("\u00fc\u00df".encode(), b"\xfc\xdf"), "json|utf"),
    "half a surrogate": (with_member('"\\ud800":' + ENTRY), "json|utf"),
    "control character in a name": (with_member('"norm\n.weight":' + ENTRY), "json"),
    "nested": (file_bytes('{"a":' * 50_000, DATA), "model|nested|object"),
    "nested below an unknown key": (with_member(f'"norm.weight":{{"x":{"[" * 50_000}'), NORM, "nested"),
    "NaN": (with_entry('"dtype"', '"scale":NaN,"dtype"'), "json"),
    "Infinity": (with_entry('"dtype"', '"scale":-Infinity,"dtype"'), "json"),
    # numbers
    "float offsets": (with_entry(f"[{BEGIN},{END}]", f"[{BEGIN}.0,{END}.0]"), NORM, "data_offsets"),
    "negative offset": (with_entry(f"[{BEGIN},{END}]", f"[-{BEGIN},{END}]"), NORM, "data_offsets"),
    "negative zero": (with_entry("[20]", "[20,-0]"), NORM, "shape"),
    "offsets with an exponent": (with_entry(f",{END}]", f",{END}e0]"), NORM, "data_offsets"),
    "offsets in strings": (with_entry(f"[{BEGIN},{END}]", f'["{BEGIN}","{END}"]'), NORM, "data_offsets"),
    "offsets with a leading zero": (with_entry(f",{END}]", f",0{END}]"), "json|" + NORM),
    "three offsets": (with_entry(f",{END}]", f",{END},{END}]"), NORM, "data_offsets"),
    "one offset": (with_entry(f",{END}]", "]"), NORM, "data_offsets"),
    "no offsets": (with_entry(f',"data_offsets":[{BEGIN},{END}]', ""), NORM, "data_offsets"),
    "offset of 2^64": (with_entry(f",{END}]", ",18446744073709551616]"), NORM, "data_offsets"),
    "offset of 2^64 - 1": (with_entry(f",{END}]", ",18446744073709551615]"), NORM, "data_offsets"),
    "offset of 2^63": (with_entry(f",{END}]", ",9223372036854775808]"), NORM, "data_offsets"),
    "end before begin": (with_entry(f"[{BEGIN},{END}]", f"[{END},{BEGIN}]"), NORM, "before"),
    "float shape": (with_entry("[20]", "[20.0]"), NORM, "shape"),
    "negative shape": (with_entry("[20]", "[-20]"), NORM, "shape"),
    "two negative dimensions": (with_entry("[20]", "[-4,-5]"), NORM, "shape"),
    "shape in a string": (with_entry("[20]", '"20"'), NORM, "shape"),
    "shape of a list": (with_entry("[20]", "[[20]]"), NORM, "shape"),
    "null shape": (with_entry("[20]", "null"), NORM, "shape"),
    "no shape": (with_entry('"shape":[20],', ""), NORM, "shape"),
    "shape of 2^63": (with_entry("[20]", "[9223372036854775808]"), NORM, "overflow|span|take"),
    "shape of 2^32 by 2^32": (with_entry("[20]", "[4294967296,4294967296]"), NORM, "overflow"),
    "shape of 2^32 by 2^32 by 0": (with_entry("[20]", "[4294967296,4294967296,0]"), NORM, "overflow|span|take"),
    "shape too large": (with_entry("[20]", "[21]"), NORM, "21|42"),
    "shape too small": (with_entry("[20]", "[19]"), NORM, "19|38"),
    "no dtype": (with_entry('"dtype":"BF16",', ""), NORM, "dtype"),
    "null dtype": (with_entry('"BF16"', "null"), NORM, "dtype"),
    "dtype in lower case": (with_entry("BF16", "bf16"), NORM, "dtype", "bf16"),
    "dtype of PyTorch": (with_entry("BF16", "torch.bfloat16"), NORM, "dtype"),
    "dtype of tomorrow": (with_entry("BF16", "F8_E4M3_ROW"), NORM, "dtype", "F8_E4M3_ROW"),
    "other dtype": (with_entry("BF16", "F32"), NORM, "80|F32"),
    "entry that is null": (with_member('"norm.weight":null'), NORM, "object"),
    "entry that is a list": (with_member('"norm.weight":[]'), NORM, "object"),
    "entry that is a string": (with_member('"norm.weight":"BF16"'), NORM, "object"),
    "dtype twice in an entry": (with_entry('"shape"', '"dtype":"BF16","shape"'), NORM, "duplicate|twice"),
    # names
    "name twice, equal": (with_member(f"{MEMBER},{MEMBER}"), NORM, "duplicate|twice"),
    "name twice, with escapes": (with_member(f"{MEMBER},{MEMBER}".replace("norm", "n\\u006Frm", 1)), NORM, "duplicate|twice"),
    "name twice, slash with and without escape": (
        with_member(f'"a\\/b":{ENTRY},"a/b":{ENTRY}'), "a/b", "duplicate|twice"),
    "metadata twice": (file_bytes('{"__metadata__":{"a":"1"},"__metadata__":{"a":"2"},' + TEXT[1:], DATA), "__metadata__",
                       "duplicate|twice"),
    "metadata twice, empty": (file_bytes('{"__metadata__":{},"__metadata__":{},' + TEXT[1:], DATA), "__metadata__",
                              "duplicate|twice"),
    "key of metadata twice": (file_bytes('{"__metadata__":{"a":"1","a":"2"},' + TEXT[1:], DATA), "__metadata__",
                              "duplicate|twice"),
    # metadata that other readers would not take: it has strings, nothing else
    "metadata with a number": (file_bytes('{"__metadata__":{"step":1000},' + TEXT[1:], DATA), "__metadata__", "step", "string"),
    "metadata with null": (file_bytes('{"__metadata__":{"format":null},' + TEXT[1:], DATA), "__metadata__", "format", "string"),
    "metadata with an object": (file_bytes('{"__metadata__":{"config":{"a":1}},' + TEXT[1:], DATA), "__metadata__", "config",
                                "string"),
    "metadata that is a string": (file_bytes('{"__metadata__":"pt",' + TEXT[1:], DATA), "__metadata__"),
    "metadata that is a tensor": (file_bytes(f'{{"__metadata__":{ENTRY},{TEXT[1:].replace(MEMBER + ",", "")}', DATA),
                                  "__metadata__"),
    # places
    "overlap": (with_member(f'{MEMBER},"more":{ENTRY}'), "norm|more", "overlap"),
    "overlap of one byte": (with_entry(f"[{BEGIN},{END}]", f"[{BEGIN - 1},{END - 1}]"), "overlap"),
    "hole": (file_bytes(TEXT.replace(MEMBER + ",", ""), DATA), "hole", str(BYTES)),
    "hole at the start": (file_bytes({"a": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}}, bytes(8)), "hole", "4"),
    "data without tensors": (file_bytes("{}", bytes(8)), "8"),
    "empty tensor in the middle of another": (
        with_member(f'{MEMBER},"nothing":{{"dtype":"U8","shape":[0],"data_offsets":[{BEGIN + 1},{BEGIN + 1}]}}'),
        "nothing|norm", "overlap|hole"),
    "empty tensor after the end": (
        with_member(f'{MEMBER},"nothing":{{"dtype":"U8","shape":[0],"data_offsets":[{len(DATA) + 8},{len(DATA) + 8}]}}'),
        "nothing", "range"),
    "trailing bytes": (file_bytes(TEXT, DATA + bytes(3)), r"\b3\b", "trailing|after the last"),
    "half a byte": (
        with_member(f'{MEMBER},"nibbles":{{"dtype":"F4","shape":[3],"data_offsets":[{len(DATA)},{len(DATA) + 2}]}}') + b"\0\0",
        "nibbles", "whole"),
    # lengths
    "length of zero": (file_bytes(TEXT, DATA, length=0), "json|zero|empty"),
    "length of one": (file_bytes(TEXT, DATA, length=1), "json"),
    "length one too small": (file_bytes(TEXT, DATA, pad=False, length=len(TEXT) - 1), "json"),
    "length one too large": (file_bytes(TEXT, DATA, pad=False, length=len(TEXT) + 1), "json|nul"),
    "length beyond the file": (file_bytes(TEXT, DATA, length=len(TEXT) + len(DATA) + 100), "cut short|incomplete"),
    "length of 100,000,001": (file_bytes(TEXT, DATA, length=100_000_001), "100,?000,?000"),
    "length of 2^63": (file_bytes(TEXT, DATA, length=1 << 63), "100,?000,?000|header"),
    "length of 2^64 - 1": (file_bytes(TEXT, DATA, length=(1 << 64) - 1), "100,?000,?000|header"),
    "length of 2^64 - 8": (file_bytes(TEXT, DATA, length=(1 << 64) - 8), "100,?000,?000|header"),
    "length in the other byte order": (len(TEXT).to_bytes(8, "big") + TEXT.encode() + DATA, "100,?000,?000|header"),
    "length of 32 bits": (len(TEXT).to_bytes(4, "little") + TEXT.encode() + DATA, "header"),
    "no length": (TEXT.encode() + DATA, "header|json"),
}


class Headers(SourceCase):
    def test_legal(self):
        for kind, content in LEGAL.items():
            with self.subTest(kind=kind):
                self.compressed(self.source_file(content), WANT)
        self.compressed(self.source_folder({"model.safetensors": LEGAL["entries and keys in another order"]}), WANT)

    def test_faults(self):
        for kind, (content, *says) in FAULTS.items():
            with self.subTest(kind=kind):
                self.refused(self.source_file(content), CORRUPT, r"model\.safetensors", *says)

    def test_a_fault_in_the_second_shard_names_the_shard(self):
        for kind in ("name twice, equal", "hole", "trailing bytes", "dtype of tomorrow", "length of 2^63"):
            with self.subTest(kind=kind):
                source = self.source_folder({"a.safetensors": {"x": bf16(words(1, 5))}, "b.safetensors": FAULTS[kind][0]})
                self.refused(source, CORRUPT, r"b\.safetensors", *FAULTS[kind][1:])

    def test_lengths_near_the_limit(self):
        """The safetensors package takes headers up to 100,000,000 bytes."""
        for length in (100_000, 99_999_992):
            with self.subTest(length=length):
                source = self.source_file(file_bytes(TEXT + " " * (length - len(TEXT)), DATA))
                self.out = self.work / f"out_{length}"
                done, peak_mb = run_measured("compress", source, "-o", self.out, "--arch", self.definition)
                self.assert_done(done)
                self.assert_tensors(read_output(self.out), WANT)
                self.assertLess(peak_mb, 600)
                source.unlink()

    def test_lying_lengths_take_no_memory(self):
        for length in (99_999_999, 1 << 40, 1 << 63):
            with self.subTest(length=length):
                self.refused_cheaply(self.source_file(file_bytes(TEXT, DATA, length=length)), CORRUPT, "header")

    def test_models_without_a_tensor(self):
        for kind, content in {"empty": file_bytes("{}"), "metadata only": file_bytes('{"__metadata__":{"format":"pt"}}'),
                              "an empty tensor": file_bytes({"x": {"dtype": "BF16", "shape": [0],
                                                                   "data_offsets": [0, 0]}})}.items():
            with self.subTest(kind=kind):  # safetensors/safetensors#601
                self.refused(self.source_file(content), IMPOSSIBLE, "no tensor|no module|pattern")


class Names(SourceCase):
    """Names of kept tensors come back as they were, whatever they are; none reaches the terminal or a path raw."""

    ODD = ["", " ", "caf\u00e9.weight", "cafe\u0301.weight", "\u6a21\u578b.weight", "a/b", "../../up", "/etc/passwd", "C:\\x",
           "a\\b", '"', "'", "line\nbreak", "\u0000nul", "\x1b[31mred\x1b[0m", "\x7f", "\u009b31m", "\u202ereversed", "\u2028",
           "\ufeff", "\ufffe", "\U0001f600", ".", "..", ".weight", "a..b", "x.", "__metadata__.x", "__METADATA__", "dtype",
           "__proto__", "norm.weight ", "NORM.weight", "1e5"]

    def test_kept_tensors_of_any_name(self):
        tensors = TENSORS | {name: filled("U8", [3], seed) for seed, name in enumerate(self.ODD)}
        header, data = pack(tensors)
        for ascii_only in (False, True):
            with self.subTest(ascii_only=ascii_only):
                content = file_bytes(json.dumps(header, ensure_ascii=ascii_only, separators=(",", ":")), data)
                self.compressed(self.source_file(content), expected_output(tensors))
        self.compressed(self.source_folder({"model.safetensors": content}), expected_output(tensors))

    def test_solidus_with_an_escape(self):
        tensors = TENSORS | {"a/b/c": filled("U8", [3])}
        header, data = pack(tensors)
        self.compressed(self.source_file(file_bytes(compact(header).replace("a/b/c", "a\\/b\\/c"), data)),
                        expected_output(tensors))

    def test_siblings_of_any_name(self):
        tensors = TENSORS | {f"layers.0.{name}": filled("U8", [3], seed) for seed, name in enumerate(self.ODD)}
        self.compressed(self.source_file(tensors), expected_output(tensors))

    def test_names_of_faulty_tensors_are_shown_safely(self):
        for name in self.ODD[11:] + ["x" * 3000]:
            with self.subTest(name=name[:20]):
                header = {**HEADER, name: {"dtype": "U8", "shape": [9], "data_offsets": [len(DATA), len(DATA) + 1]}}
                done = self.refused(self.source_file(file_bytes(header, DATA + b"\0")), CORRUPT, "9")
                self.assertLess(len(done.stderr), 5000)

    def test_names_that_would_collide_with_what_is_written(self):
        """A kept tensor that has the name of a unit's buffer."""
        for buffer in ("luts", "encoded_exponent", "sign_mantissa", "output_positions", "gaps", "split_positions"):
            with self.subTest(buffer=buffer):
                tensors = TENSORS | {f"layers.0.{buffer}": filled("U8", [3])}
                self.refused(self.source_file(tensors), IMPOSSIBLE, re.escape(f"layers.0.{buffer}"))


class Dtypes(SourceCase):
    def test_kept_tensors_of_every_dtype(self):
        """Byte for byte, in the order of the format: signalling NaNs, booleans that are neither 0 nor 1, half bytes."""
        tensors = dict(TENSORS)
        for seed, dtype in enumerate(DTYPE_BITS):
            tensors |= {f"kept.{dtype}": filled(dtype, [3, 8], seed), f"layers.0.{dtype}": filled(dtype, [8], seed + 50)}
        self.compressed(self.source_file(tensors), expected_output(tensors))

    def test_shapes(self):
        """Scalars, empty tensors, ones. Comfy-Org marks scaled FP8 models with an F8 tensor of shape [0]."""
        tensors = TENSORS | {
            "scalar": filled("BF16", []), "layers.0.scalar": filled("F32", []), "scaled_fp8": ("F8_E4M3", [0], b""),
            "__x0__": ("BF16", [0], b""), "empty.0": ("F32", [0, 7], b""), "empty.1": ("F32", [7, 0], b""),
            "empty.2": ("I64", [0] * 9, b""), "layers.0.empty": ("U8", [0], b""), "huge and empty": ("U8", [1 << 30, 0], b""),
            "ones": filled("F16", [1] * 64), "vector": filled("BOOL", [1]), "odd": filled("U8", [3, 5, 7]),
            "nibbles": filled("F4", [2]), "six": filled("F6_E2M3", [4])}
        self.compressed(self.source_file(tensors), expected_output(tensors))

    def test_empty_tensors_anywhere_in_the_data(self):
        for at in (0, BEGIN, END, len(DATA)):
            with self.subTest(at=at):
                header = {"nothing": {"dtype": "F64", "shape": [3, 0], "data_offsets": [at, at]}, **HEADER}
                self.compressed(self.source_file(file_bytes(header, DATA)),
                                expected_output(TENSORS | {"nothing": ("F64", [3, 0], b"")}))

    def test_units_of_any_shape(self):
        """The shape of a weight does not count, only its words do: convolutions, vectors."""
        for shape in ([600], [1, 600], [600, 1], [2, 3, 10, 10], [5, 1, 1, 120, 1]):
            with self.subTest(shape=shape):
                tensors = TENSORS | {"embed.weight": ("BF16", shape, TENSORS["embed.weight"][2])}
                self.compressed(self.source_file(tensors), expected_output(tensors))

    def test_a_scalar_weight(self):
        tensors = TENSORS | {"embed.weight": bf16(words(3, 1), [])}
        done = self.run_on(self.source_file(tensors))
        self.assert_done(done)
        self.assertEqual(support.reference.decode_unit(support.read_unit(self.out, "embed"))[0].tobytes(),
                         tensors["embed.weight"][2])

    def test_units_at_odd_places(self):
        """Words at odd offsets in the file and in the data."""
        for shift in range(1, 8):
            with self.subTest(shift=shift):
                tensors = {"a": ("U8", [shift], some_bytes(shift, shift)), **TENSORS}
                header, data = pack(tensors)
                text = compact(header)
                content = file_bytes(text + " " * ((8 - len(text) % 8) % 8 + shift), data, pad=False)
                self.compressed(self.source_file(content), expected_output(tensors))


if __name__ == "__main__":
    unittest.main()
