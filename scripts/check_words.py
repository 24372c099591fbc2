"""Check spelling, and the phrases that the style of the project avoids.

Usage: python scripts/check_words.py [PATH ...]

Reads prose only: Markdown and reStructuredText without code, comments and strings of Python, Rust
and C, and comments of Makefile, TOML, YAML and shell scripts. Prints
`file:line: phrase: what to write instead` for each finding and exits with status 1 if there is any.
Without a path, every tracked file is checked. A line that must quote a phrase ends with
"words: allow".
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALLOW = "words: allow"

# Pairs of a phrase and the advice on it.
PHRASES = [
    (r"so many|so much as", "name the quantity"),
    (r"as many as", '"up to", or name the quantity'),
    (r"anew", '"again"'),
    (r"by turns|in turns", '"alternately"'),
    (r"stands?(?! for\b| in for\b|-)|stood", '"is"'),
    (r"rests", '"is skipped", "depends on"'),
    (r"creeps?|creeping", '"stalls"'),
    (r"(?:is|are|be) spared", '"is avoided"'),
    (r"of (?:one's|its|their|our|his|her) own", '"own", "separate", "custom"'),
    (r"others'", 'a noun, as in "other libraries\' times"'),
    (r"beside", '"next to", "compared with", "besides"'),
    (r"told", '"notified", "given", "reported"'),
    (r"ask(?:s|ed)? of", '"requires"'),
    (r"that there (?:is|are)", "a verb"),
    (r"refus(?:e|es|ed|ing|als?)", '"raises an error", "rejects"'),
    (r"thereby|thereof|therein|whereof|wherein", "a plain sentence"),
    (r"goes? about it", '"works"'),
    (r"in the manner of", '"like", "compatible with"'),
    (r"at hand", '"available"'),
    (r"nought|naught", '"zero"'),
    (r"(?<!there\s)(?-i:is|are) (?-i:none)(?! of)", "a plain negation"),
    (r"heeds?|heeded", '"uses", "respects"'),
    (r"amiss", '"wrong"'),
    (r"laid (?:out|down) as", "a plain verb"),
    (r"settles?", '"converges", "stops changing"'),
    (r"made (?:sets?|problems?)", '"generated"'),
    (r"right (?:labels?|class(?:es)?)", '"true label", "correct class"'),
    (r"sub-problems?", '"subproblem"'),
]
PHRASE = re.compile(
    r"(?<![\w`./-])(?:"
    + "|".join(f"(?P<p{i}>{form})".replace(" ", r"\s+") for i, (form, _) in enumerate(PHRASES))
    + r")(?![\w`-])",
    re.I,
)
# Noun clauses that are the subject of a sentence or start a heading or comment.
TAIL = r"\b(?! follows:)[^.?!]*(?P<end>[.?!]|$)"
CLAUSE = re.compile(r"(?:^|(?<=[.!:;]\s))(?:What|Whatever|Who|Whose|Whoever)" + TAIL)
OPENING = re.compile(r"^(?:Where|Which|So that|Of)" + TAIL)
# Parts of f-strings are tokens of their own type from Python 3.12 on.
STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
CODE = re.compile(r"(`+).*?\1", re.S)


def blank(match: re.Match[str]) -> str:
    """Replace code by the same number of other characters, so that positions do not change."""
    return re.sub(r"[^\n]", "`", match[0])


def prose_of_markdown(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the paragraphs, with code, formulas, generated tables and link targets left out."""
    text = re.sub(r"^(```+|~~~+).*?^\1", lambda m: "\n" * m[0].count("\n"), text, flags=re.S | re.M)
    text = re.sub(r"<!--.*?-->", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    lines = CODE.sub(blank, text).split("\n")
    paragraph: list[str] = []
    start = 1
    for number, line in enumerate([*lines, ""], 1):
        apart = not line.strip() or re.match(r"\s*(#|[-*] |\d+\. |\||:|\.\. )", line)
        if apart and paragraph:
            yield start, "\n".join(paragraph), True
            paragraph = []
        if line.strip():
            if not paragraph:
                start = number
            paragraph.append(line)


def prose_of_python(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the strings, and the blocks of comments."""
    block: list[str] = []
    start, last = 0, -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1 and block:
                yield start, "\n".join(block), True
                block = []
            if not block:
                start = token.start[0]
            block.append(token.string.lstrip("# "))
            last = token.start[0]
        elif token.type in STRINGS:
            body = re.sub(r"^\w*(\"\"\"|'''|\"|')", "", token.string)
            documents = token.string.startswith(('"""', 'r"""'))
            body = re.sub(r"(\"\"\"|'''|\"|')$", "", body)
            body = re.sub(r"^ *(>>>|\.\.\.).*$", "", body, flags=re.M)
            line = token.start[0]
            for part in re.split(r"(\n\s*\n)", CODE.sub(blank, body)):
                if part.strip():
                    yield line, part, documents
                line += part.count("\n")
    if block:
        yield start, "\n".join(block), True


def prose_of_rust(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the strings, and the blocks of comments with their code examples left out."""
    block: list[str] = []
    start, fenced = 0, False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        comment = re.match(r"\s*//[/!]?(.*)$", line)
        body = comment[1].strip() if comment else ""
        if body.startswith("```"):
            fenced = not fenced
            body = ""
        if fenced or not body:
            if block:
                yield start, CODE.sub(blank, "\n".join(block)), True
            block = []
        if not comment:
            fenced = False
            code = re.sub(r"'(\\.|[^\\'])'", " ", line)
            for string in re.finditer(r'"((?:[^"\\]|\\.)*)"', code):
                yield number, CODE.sub(blank, string[1]), False
            trailing = re.search(r'(?<![:"])//\s(.*)$', re.sub(r'"(?:[^"\\]|\\.)*"', '""', code))
            if trailing:
                yield number, CODE.sub(blank, trailing[1]), False
        elif body and not fenced:
            if not block:
                start = number
            block.append(body)


def prose_of_comments(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the blocks of comments, and the comments at the ends of lines, that begin with "#"."""
    block: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        whole, trailing = re.match(r"\s*#(?!!)(.*)$", line), re.search(r"\s##? (.*)$", line)
        if whole:
            block.append(whole[1].strip())
            continue
        if block:
            yield number - len(block), CODE.sub(blank, "\n".join(block)), True
            block = []
        if trailing:
            yield number, CODE.sub(blank, trailing[1]), False


PROSE = {
    **dict.fromkeys((".md", ".rst"), prose_of_markdown),
    **dict.fromkeys((".py", ".pyi"), prose_of_python),
    **dict.fromkeys((".rs", ".c"), prose_of_rust),
    **dict.fromkeys((".toml", ".yml", ".yaml", ".cff", "Makefile", "#!"), prose_of_comments),
}


def kind(path: Path) -> str:
    """Return the key of a file in `PROSE`: its suffix, its name, or "#!" for scripts."""
    if path.suffix or not path.is_file():
        return path.suffix
    return "#!" if path.read_bytes()[:2] == b"#!" else path.name


def findings(path: Path) -> Iterator[str]:
    """Yield each phrase to avoid in a file, with its line."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        for number, line in enumerate(text.split("\n"), 1):
            if line.startswith("%"):
                yield f"{path}:{number}: '%' begins a comment of MyST: break the line elsewhere"
            if re.search(r"\\text\{[^}]*$", line):
                yield f"{path}:{number}: MathJax drops a line break in '\\text': break it elsewhere"
    allowed = {number for number, line in enumerate(text.split("\n"), 1) if ALLOW in line}
    for start, body, opens in PROSE[kind(path)](text):
        # Blank the markers at the start of continued lines, because a phrase may span two lines.
        flat = re.sub(r"\n[ \t>#*/!]+", lambda m: "\n" + " " * (len(m[0]) - 1), body)
        bare = flat.lstrip(" #-*|:!.\n")
        found = [
            (match.start(), match[0], PHRASES[int(match.lastgroup[1:])][1])
            for match in PHRASE.finditer(flat)
            if match.lastgroup
        ]
        for clause in [*CLAUSE.finditer(bare), *OPENING.finditer(bare)]:
            if opens and clause["end"] != "?":
                position = clause.start() + len(flat) - len(bare)
                found.append((position, clause[0][:40], "begin with a noun or a verb"))
        for position, phrase, instead in sorted(found):
            line = start + flat[:position].count("\n")
            if line not in allowed:
                yield f"{path}:{line}: {' '.join(phrase.split())!r}: {instead}"


def tracked(paths: Iterable[str]) -> list[Path]:
    """List the tracked files below the given paths, or all tracked files."""
    chosen = list(paths)
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *chosen]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
    return [
        Path(name)
        for name in names
        if kind(Path(name)) in PROSE
        and Path(name).name != Path(__file__).name
        and Path(name).is_file()
    ]


def main(arguments: list[str]) -> int:
    """Check the files and print what is found."""
    paths = tracked(arguments)
    found = [line for path in paths for line in findings(path)]
    print(*found, sep="\n", end="\n" if found else "")
    if not paths:
        return 0
    spelling = subprocess.run([sys.executable, "-m", "codespell_lib", *map(str, paths)], cwd=".")
    return int(bool(found) or spelling.returncode != 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
