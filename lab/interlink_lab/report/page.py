"""The report as one HTML file that loads nothing: all is in it, and a policy forbids the rest."""

import base64
import hashlib
import json
from importlib import resources
from typing import Any

ASSETS = "interlink_lab.report"
SCRIPTS = ("chart.js", "page.js")


def page(data: dict[str, Any]) -> str:
    """The page of `timeline(run)`."""
    style = asset("page.css")
    script = '(() => {\n"use strict";\n' + "".join(asset(name) for name in SCRIPTS) + "})();\n"
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    html = asset("page.html")
    for name, text in (("POLICY", policy), ("STYLE", style), ("SCRIPT", script), ("DATA", embedded(data))):
        html = html.replace(f"@@{name}@@", text, 1)  # data last: nothing in it is taken for a place
    return html


def asset(name: str) -> str:
    """A file of the package."""
    return resources.files(ASSETS).joinpath("assets", name).read_text("utf-8")


def digest(text: str) -> str:
    """What a content security policy calls this inline text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def embedded(data: Any) -> str:
    """JSON that no HTML parser sees a tag, an entity or the end of the script in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    # A lone surrogate is legal in JSON and not in UTF-8.
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text)
