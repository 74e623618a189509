"""README.md's C++ example, as it stands there: built by CMake, run on a small model."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "tools"))
import df11_reference_model as reference  # noqa: E402


class ReadmeExample(unittest.TestCase):
    def test_it_compresses_a_model(self):
        with tempfile.TemporaryDirectory() as work:
            make = [sys.executable, str(ROOT / "scripts" / "make_synthetic_checkpoint.py"), f"{work}/model", "--weights", "300000"]
            subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
            shutil.copytree(ROOT / "architectures", f"{work}/architectures")
            subprocess.run([os.environ["WEIGHTPRESS_README_EXAMPLE"]], cwd=work, check=True)
            self.assertEqual(reference.check(f"{work}/model", f"{work}/model-df11"), 0)


if __name__ == "__main__":
    unittest.main()
