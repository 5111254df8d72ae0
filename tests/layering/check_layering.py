#!/usr/bin/env python3
"""Holds the layering rule: every #include follows layers.txt, and its folders form no cycle. And that no two types have
one name in one namespace: programs with both would take the one's functions for the other's, and nothing else says so."""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)

NAMESPACE = re.compile(r"^namespace(?: ([\w:]+))? \{|^\}  // namespace(?: ([\w:]+))?$")
TYPE = re.compile(r"^(?:class|struct|union|enum(?: class)?) (\w+)(?: final)?(?: :[^;]*)?(?: \{.*)?$")


def named_types(text):
    """(namespace, name) of the types that a file defines outside all others and outside unnamed namespaces."""
    namespaces = []
    for line in text.splitlines():
        namespace = NAMESPACE.match(line)
        if namespace and line.startswith("}"):
            if namespaces:
                namespaces.pop()
        elif namespace:
            namespaces.append(namespace.group(1))
        elif None not in namespaces and not line.rstrip().endswith(";"):
            found = TYPE.match(line)
            if found:
                yield "::".join(namespaces), found.group(1)


def find_twins(root, files):
    defined, faults = {}, []
    for path in files:
        for namespace, name in named_types((root / path).read_text()):
            first = defined.setdefault((namespace, name), path)
            if first != path:
                faults.append(f"{path}: {namespace}::{name} is in {first} as well")
    return faults


def read_rules(path):
    folders, headers = {}, []
    for line in path.read_text().splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if " = " in line:
            pattern, allowed = line.split(" = ")
            headers.append((re.compile(pattern), allowed.split()))
        else:
            name, _, allowed = line.partition(":")
            folders[name] = allowed.split()
    return folders, headers


def folder_of(path, folders):
    """The longest listed folder that holds `path`; None when there is none."""
    text = str(path)
    matches = [name for name in folders if text.startswith(name + "/")]
    return max(matches, key=len, default=None)


def find_cycle(folders):
    state = {}

    def visit(name, trail):
        if state.get(name) == "done":
            return None
        if name in trail:
            return trail[trail.index(name):] + [name]
        for other in folders.get(name, []):
            if other != "*":
                cycle = visit(other, trail + [name])
                if cycle:
                    return cycle
        state[name] = "done"
        return None

    for name in folders:
        cycle = visit(name, [])
        if cycle:
            return cycle
    return None


def check(root, rules):
    folders, headers = read_rules(rules)
    faults = []
    cycle = find_cycle(folders)
    if cycle:
        faults.append("layers.txt has a cycle: " + " -> ".join(cycle))
    files = [
        path.relative_to(root)
        for top in ("runtime", "server", "tools", "tests", "bench")
        for path in sorted((root / top).rglob("*"))
        if path.suffix in (".h", ".cc", ".inc")
    ]
    for path in files:
        folder = folder_of(path, folders)
        if folder is None:
            if path.parts[0] in ("runtime", "server"):
                faults.append(f"{path}: its folder is not in layers.txt")
            continue
        for header in INCLUDE.findall((root / path).read_text()):
            for pattern, allowed in headers:
                if pattern.search(header) and not any(
                    folder == name or folder.startswith(name + "/") for name in allowed
                ):
                    faults.append(f"{path}: only {' '.join(allowed)} may include <{header}>")
            target = folder_of(header, folders)
            if target and target != folder and "*" not in folders[folder]:
                if target not in folders[folder]:
                    faults.append(f"{path}: {folder} may not include {header}")
    return files, faults + find_twins(root, files)


def main():
    root = pathlib.Path(sys.argv[1])
    rules = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(__file__).with_name("layers.txt")
    files, faults = check(root, rules)
    for fault in faults:
        print(fault)
    print(f"{len(files)} files checked, {len(faults)} faults")
    return 1 if faults or not files else 0


if __name__ == "__main__":
    sys.exit(main())
