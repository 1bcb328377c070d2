"""The privacy page of one table: what is promised, what is public, and how to read the counts; one file, offline."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup, escape

from das.report.charts import Bar, bar_chart

__all__ = ["table_page"]

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "svg{width:100%;font:14px system-ui,sans-serif}.bar{fill:#3a6ea5}.axis{stroke:#888}.open{fill:#ccc}"
    "td,th{text-align:left;padding:.15rem .8rem .15rem 0;vertical-align:top}"
)


def table_page(statement: dict[str, Any], facts: dict[str, Any]) -> str:
    """Return the page of a statement and the public facts.

    Examples
    --------
    >>> effective = [{"policy": "semi", "a": 2, "epsilon": 1.0, "delta": 0.0, "meaning": "Up to 2 records change."}]
    >>> page = table_page({"name": "<a>", "effective": effective, "secrets": [], "status": "proved", "reading": [],
    ...     "mechanism": "k-norm", "noise": "n", "adjacency": {"a": 2, "grounds": "nested totals"}, "disclosed": []},
    ...     {"published": [], "bounds": [], "zeros": [], "records": 5})
    >>> "&lt;a&gt;" in page and "Up to 2 records change." in page
    True
    """
    bars = [
        Bar(each.get("policy") or each["secret"], each.get("epsilon"), _number(each), "nominal")
        for each in (*statement["effective"], *statement["secrets"])
    ]
    a = statement["adjacency"]
    body = Markup("<p>{} ({}): {}.</p>").format(statement["mechanism"], statement["noise"], statement["status"])
    body += Markup("<h2>What is promised</h2>") + bar_chart("epsilon", "epsilon by policy and secret", bars)
    body += _list(f"{each['policy']}: {each['meaning']}" for each in statement["effective"])
    body += Markup("<p>a(t) = {}: {}.</p>").format(a["a"], a["grounds"])
    body += Markup("<h2>What is public and not protected</h2>")
    published = [f"{each['about']}: {each['count']}" for each in facts["published"]]
    published += [f"{', '.join(each['cells'])}: {each['least']} to {each['most']}" for each in facts["bounds"]]
    published += [f"{cell}: nobody can be there" for cell in facts["zeros"]]
    body += _list([f"number of records: {facts['records']}", *published])
    if statement["disclosed"]:
        body += Markup("<p>These facts disclose the exact count of: {}.</p>").format(", ".join(statement["disclosed"]))
    body += Markup("<h2>How to read the counts</h2>") + _list(statement["reading"])
    head = Markup(
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>{0}</title><style>{1}</style><h1>{0}</h1>'
    )
    return str(head.format(escape(statement["name"]), Markup(STYLE)) + body) + "\n"


def _list(items: Any) -> Markup:
    return Markup("<ul>") + Markup("").join(Markup("<li>{}</li>").format(item) for item in items) + Markup("</ul>")


def _number(entry: dict[str, Any]) -> str:
    if "epsilon" not in entry:
        return str(entry["status"])
    return f"{entry['epsilon']:g}" + (f" at delta {entry['delta']:.1e}" if entry["delta"] else "")
