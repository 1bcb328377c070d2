"""Formulas as the proof notes write them, in plain text, to LaTeX; and LaTeX to MathML."""

from __future__ import annotations

import html as html_text
import re

__all__ = ["fenced_formulas", "is_formula", "latex", "to_mathml", "with_formulas"]

LETTERS = """
    alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi pi rho sigma tau phi chi psi omega
    Gamma Delta Theta Lambda Sigma Phi Psi Omega
"""
GREEK = frozenset(LETTERS.split())
FUNCTIONS = {"log", "exp", "sin", "cos", "tanh", "cosh", "sinh", "max", "min", "sup", "inf", "det"}
SHORT_WORDS = {"an", "as", "at", "by", "if", "in", "is", "of", "on", "or", "sd", "to"}
"""Words of two letters that are not a product of two variables."""
OPERATORS = {
    "<=": r"\le ", ">=": r"\ge ", "!=": r"\ne ", "->": r"\to ", "-+": r"\mp ", "+-": r"\pm ", "||": r"\|",
    "...": r"\dots ", "…": r"\dots ", "*": r"\cdot ", "·": r"\cdot ", "×": r"\times ", "≤": r"\le ", "≥": r"\ge ",
    "≠": r"\ne ", "−": "-", "∞": r"\infty ", "‖": r"\|", "Σ": r"\sum ", "∏": r"\prod ", "√": r"\surd ", "∈": r"\in ",
    "ε": r"\varepsilon ", "ρ": r"\rho ", "σ": r"\sigma ", "δ": r"\delta ", "π": r"\pi ", "α": r"\alpha ", "μ": r"\mu ",
    "θ": r"\theta ", "λ": r"\lambda ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "²": "^2", "³": "^3", "~": r"\sim ",
    "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "#": r"\#",
}  # fmt: skip
TOKEN = re.compile(
    r"(?P<number>\d+(?:,\d{3})*(?:\.\d+)?)|(?P<name>[A-Za-z]+)|(?P<prime>'+)|(?P<space>\s+)|(?P<op><=|>=|!=|->|-\+|\+-|\|\||\.\.\.|.)",
    re.S,
)
CODE = re.compile(
    r"""\.py|\.md|\.toml|--|["`]\w{2}|'[a-z]{2}|\w\.\w*[a-z]{2}|[a-z]_[a-z]{3}|[a-z]{2}/[a-z]{3}|^[\w.]+\(\)$"""
)
FORMULA = re.compile(r"<=|>=|!=|\^|\|\||[=<>+≤≥]|\w - |_[a-z0-9{]|->")
MATH = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")


def is_formula(text: str) -> bool:
    """Whether a code span is mathematics, and not the name of something in the program.

    Examples
    --------
    >>> [is_formula(text) for text in ("rho t^2 + log(1+t) = log(1/delta)", "a(t)", "x - e_c", "rho")]
    [True, True, True, True]
    >>> [is_formula(text) for text in ("das/plan/load.py", "semi_adjacency", "--runs 5", "draw", "erfcx")]
    [False, False, False, False, False]
    """
    if CODE.search(text):
        return False
    words = [
        word
        for word in re.findall(r"[A-Za-z]{4,}", text)
        if word not in (*GREEK, *FUNCTIONS, "sqrt", "prod", "floor", "ceil")
    ]
    if FORMULA.search(text):
        return len(words) <= 2
    return text in GREEK or re.fullmatch(r"[A-Za-z]'?|[A-Za-z]\([A-Za-z]\)", text) is not None


def latex(text: str) -> str:
    r"""Write a formula of a note in LaTeX.

    Examples
    --------
    >>> latex("epsilon'(t) = rho - log(1/delta)/t^2")
    "\\varepsilon '(t) = \\rho  - \\log (1/\\delta )/t^{2}"
    >>> latex("sqrt(L/2rho) <= ||W m||^2"), latex("2^-46 sum |terms|"), latex("x'' + e_{a_n}")
    ('\\sqrt{L/2\\rho } \\le  \\|W m\\|^{2}', '2^{-46} \\sum  |\\text{terms}|', "x'' + e_{a_{n}}")
    """
    plain = re.sub(r"\bsigma2(?![\w.])|\bsigma2(?=_)", "sigma^2", text.strip())
    found, _ = _sequence([(match.lastgroup or "", match.group()) for match in TOKEN.finditer(plain)], 0, "")
    return found.strip()


def _sequence(tokens: list[tuple[str, str]], at: int, closing: str) -> tuple[str, int]:
    """Translate up to the closing bracket."""
    written = ""
    while at < len(tokens):
        kind, text = tokens[at]
        if closing and text == closing:
            return written, at + 1
        if text in "^_" and kind == "op":
            part, at = _script(tokens, at + 1)
            written += f"{text}{{{part}}}"
            continue
        if text == "sqrt" and tokens[at + 1 : at + 2] == [("op", "(")]:
            part, at = _sequence(tokens, at + 2, ")")
            written += rf"\sqrt{{{part}}}"
            continue
        if text == "(":
            part, at = _sequence(tokens, at + 1, ")")
            written += f"({part})"
            continue
        written += _token(kind, text)
        at += 1
    return written, at


def _script(tokens: list[tuple[str, str]], at: int) -> tuple[str, int]:
    """What stands raised or lowered: a bracketed part, or one signed number or name."""
    if at >= len(tokens):
        return "", at
    kind, text = tokens[at]
    if text == "{":
        return _sequence(tokens, at + 1, "}")
    if text == "(":
        return _sequence(tokens, at + 1, ")")
    if text in "-−" and at + 1 < len(tokens):
        part, after = _script(tokens, at + 1)
        return f"-{part}", after
    return _token(kind, text).strip() if text != "*" else "*", at + 1


def _token(kind: str, text: str) -> str:
    if kind == "name":
        if text in GREEK:
            return {"epsilon": r"\varepsilon "}.get(text, rf"\{text} ")
        if text in FUNCTIONS:
            return rf"\{text} "
        if text in ("sum", "prod", "product", "sqrt"):
            return {"sum": r"\sum ", "sqrt": r"\surd "}.get(text, r"\prod ")
        product = len(text) == 2 and text.islower() and text not in SHORT_WORDS
        return text if len(text) == 1 else " ".join(text) if product else rf"\text{{{text}}}"
    if kind == "space":
        return " "
    return OPERATORS.get(text, text) if kind == "op" else text


def _spaced(text: str) -> str:
    r"""Keep the spaces between words of prose in a formula: "max over changes m" is read as words."""
    return re.sub(r"(\\text\{[^}]*\}) +(?=\S)", r"\1\\ ", re.sub(r"(?<=[\w})|]) +(?=\\text\{)", r"\\ ", text))


def with_formulas(markdown: str) -> str:
    """Write code spans and indented blocks of a note that are mathematics in LaTeX."""
    blocks = re.split(r"(\n\n(?: {4}[^\n]*\n?)+)", markdown)
    done = []
    for number, block in enumerate(blocks):
        if number % 2:
            lines = [line.strip() for line in block.strip("\n").splitlines()]
            done.append(_display(lines) or block)
        else:
            done.append(
                "".join(
                    line if line.startswith("#") else _inline(line) for line in re.split(r"(^#.*\n)", block, flags=re.M)
                )
            )
    return "".join(done)


def _inline(text: str) -> str:
    """Code spans that are formulas, in LaTeX; not in headings, which also stand in the table of contents."""

    def written(span: re.Match[str]) -> str:
        found = _convertible(span.group(1)) if is_formula(span.group(1)) else None
        return f"${found}$" if found else span.group(0)

    return SPAN.sub(written, text)


def _convertible(text: str) -> str | None:
    """The formula in LaTeX, if it is well-formed; otherwise a note keeps it as it is written."""
    from latex2mathml.converter import convert

    found = _spaced(latex(text))
    try:
        convert(found)
    except Exception:  # each kind of malformed LaTeX has a class of its own
        return None
    return found


def fenced_formulas(block: str) -> str:
    """Write a fenced block without a language in LaTeX, if every line of it is mathematics."""
    if not re.match(r"```\n", block):
        return block
    return _display([line.strip() for line in block.splitlines()[1:-1] if line.strip()]) or block


def _display(lines: list[str]) -> str:
    """One displayed formula a line; nothing if some line is not one."""
    if not lines or not all(FORMULA.search(line) and not CODE.search(line) for line in lines):
        return ""
    found = [_convertible(line) for line in lines]
    return "".join(f"\n\n$$\n{line}\n$$\n" for line in found) + "\n" if all(found) else ""


def to_mathml(page: str) -> str:
    """Replace what ``pymdownx.arithmatex`` marked by MathML."""
    from latex2mathml.converter import convert

    def mathml(match: re.Match[str]) -> str:
        text = html_text.unescape(match.group(2)).strip()
        display = "block" if text.startswith(r"\[") else "inline"
        return convert(text[2:-2].strip(), display=display)

    return MATH.sub(mathml, page)
