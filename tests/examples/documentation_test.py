#!/usr/bin/env python3
"""What README and docs/ quote must be the files' text, and their links must lead somewhere."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.S | re.M)


def quoted(document, language, path):
    """The one block of this language in a document is the text of a file from its first include or command on."""
    found = blocks((ROOT / document).read_text(), language)
    source = (ROOT / path).read_text()
    start = re.search(r"^(#include|cmake_minimum_required)", source, re.M).start()
    if source[start:] not in found:
        return [f"{document}: no ```{language} block is the text of {path} from its first line of code to its end"]
    return []


def links(document):
    text = document.read_text()
    text = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    errors = []
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"""(?:src|href)="([^"]+)\"""", text)
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        if not file.exists():
            errors.append(f"{document.relative_to(ROOT)}: {target} does not exist")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
            errors.append(f"{document.relative_to(ROOT)}: {target} has no such heading")
    return errors


def anchors(text):
    text = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)}


def test_names(document):
    """Tests named as `program: Suite.Name` (or `Suite.*`) are in the sources."""
    sources = "".join(path.read_text() for path in (ROOT / "tests").glob("**/*.cpp"))
    lists = "".join(path.read_text() for path in (ROOT / "tests").glob("*/CMakeLists.txt"))
    tests = {f"{suite}.{name}" for suite, name in re.findall(r"TEST(?:_[FP])?\((\w+),\s*(\w+)\)", sources)}
    tests |= {f"{suite}.{name}" for suite, name in re.findall(r"TYPED_TEST\((\w+),\s*(\w+)\)", sources)}
    errors = []
    for word in re.findall(r"`([^`]+)`", document.read_text()):
        program, _, test = word.rpartition(": ")
        if program and not re.search(rf"\b{program.removeprefix('comm_')}\b", lists):
            if not re.search(rf"\b{re.sub('^launch_|_test$', '', program)}\b", lists):
                errors.append(f"{document.relative_to(ROOT)}: no test program {program}")
        if re.fullmatch(r"\w+\.[\w*]+", test):
            pattern = re.escape(test).replace(r"\*", ".*")
            if not any(re.fullmatch(pattern, one) for one in tests):
                errors.append(f"{document.relative_to(ROOT)}: no test {test}")
    return errors


def main():
    errors = quoted("README.md", "cpp", "examples/quickstart.cpp")
    errors += quoted("README.md", "cmake", "examples/cmake_project/CMakeLists.txt")
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    for document in documents:
        errors += links(document)
    errors += test_names(ROOT / "docs/cases.md")
    print("\n".join(errors) if errors else f"{len(documents)} documents agree with what they quote")
    return 1 if errors else 0


sys.exit(main())
