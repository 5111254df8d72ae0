"""The checker finds what it is there to find."""

import pathlib
import tempfile
import unittest

import check_layering

RULES = """
runtime/base:
runtime/tensor: runtime/base
^yaml-cpp = runtime/tensor
"""


class CheckLayering(unittest.TestCase):
    def faults(self, files, rules=RULES):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            (root / "layers.txt").write_text(rules)
            return check_layering.check(root, root / "layers.txt")[1]

    def test_allows_what_the_rules_list(self):
        files = {"runtime/tensor/a.cc": '#include "runtime/base/b.h"\n#include <yaml-cpp/yaml.h>\n'}
        self.assertEqual(self.faults(files), [])

    def test_refuses_an_upward_include(self):
        self.assertEqual(len(self.faults({"runtime/base/a.cc": '#include "runtime/tensor/b.h"\n'})), 1)

    def test_refuses_a_library_outside_its_home(self):
        self.assertEqual(len(self.faults({"runtime/base/a.cc": "#include <yaml-cpp/yaml.h>\n"})), 1)

    def test_refuses_a_folder_without_a_row(self):
        self.assertEqual(len(self.faults({"runtime/new/a.cc": "int x;\n"})), 1)

    def test_refuses_a_cycle_in_the_rules(self):
        cycle = "runtime/base: runtime/tensor\nruntime/tensor: runtime/base\n"
        self.assertEqual(len(self.faults({"runtime/base/a.cc": "\n"}, cycle)), 1)

    def test_refuses_two_types_of_one_name(self):
        header = "namespace onnxd {{\n{}\n}}  // namespace onnxd\n"
        twins = {"runtime/base/a.h": header.format("struct Same {\n};"),
                 "runtime/tensor/b.h": header.format("class Same : public Other {\n};")}
        self.assertEqual(len(self.faults(twins)), 1)
        apart = {"runtime/base/a.h": header.format("struct Same {\n};"),
                 "runtime/base/b.h": "namespace onnxd::part {\nstruct Same {\n};\n}  // namespace onnxd::part\n",
                 "runtime/base/c.h": header.format("struct Same;\nstruct Outer {\n  struct Same {};\n};"),
                 "runtime/base/d.cc": header.format("namespace {\nstruct Same {\n};\n}  // namespace")}
        self.assertEqual(self.faults(apart), [])


if __name__ == "__main__":
    unittest.main()
