"""The report page's style sheet and what its policy admits."""

import base64
import hashlib
import re
from html import unescape

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--ink:#1b1f24;--soft:#59636e;--line:#d5dae0;--mark:#d9f2e3;
--link:#0b5cad;--good:#0a6b3d;--bad:#a33a00;--head:#f3f5f7}
@media(prefers-color-scheme:dark){:root{--bg:#14171b;--ink:#e6e9ed;--soft:#a2abb5;--line:#363c44;
--mark:#12452e;--link:#7db8f5;--good:#6fd6a0;--bad:#ffa071;--head:#1e2329}}
*{box-sizing:border-box}html{scroll-padding-top:1rem}
body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--bg);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;overflow-wrap:break-word}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0}h2{font-size:1.2rem;margin:2rem 0 .5rem}h3{font-size:1rem}
a{color:var(--link)}a:focus-visible,.scroll:focus-visible,summary:focus-visible,pre:focus-visible{
outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-999px}.skip:focus{left:1rem;top:.5rem;background:var(--bg);padding:.5rem;z-index:9}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1rem;list-style:none;padding:0;margin:.5rem 0}
nav a{display:inline-block;padding:.4rem 0}summary{padding:.4rem 0;cursor:pointer}
.scroll{position:relative;overflow-x:auto;border:1px solid var(--line);border-radius:6px;max-width:100%}
table{border-collapse:collapse;width:100%;font-size:.875rem;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:.4rem .6rem;color:var(--soft);position:sticky;left:0;width:max-content;
max-width:calc(100vw - 3rem)}
th,td{padding:.35rem .6rem;text-align:right;white-space:nowrap;vertical-align:top;
border-top:1px solid var(--line)}
th{font-weight:600;background:var(--head)}th:first-child{text-align:left;position:sticky;left:0;z-index:1}
[scope=row]{white-space:normal;min-width:7rem;max-width:20rem;overflow-wrap:anywhere}
.text td{text-align:left;white-space:normal;min-width:16rem}
td.best{background:var(--mark);font-weight:700}td.best::after{content:" ★"}
small{color:var(--soft)}.better{color:var(--good);font-weight:600}.worse{color:var(--bad);font-weight:600}
.front{color:var(--link)}abbr{text-decoration:none}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1.5rem}
.maps{grid-template-columns:repeat(auto-fill,minmax(15rem,1fr));gap:1rem}
@media(max-width:40rem){.maps{grid-template-columns:1fr 1fr}}
figure{margin:0;min-width:0}svg *{stroke-linejoin:round;stroke-linecap:butt}
svg{display:block;width:100%;height:auto;max-width:40rem}
figcaption{font-size:.875rem;color:var(--soft)}
pre{overflow-x:auto;background:var(--head);padding:.6rem;border-radius:6px;max-width:100%}
dt{font-weight:600}dd{margin:0 0 .4rem;color:var(--soft)}
@media print{nav,.skip{display:none}.scroll{overflow:visible}}
"""


def styles_apart(body: str) -> tuple[str, str]:
    """The figures' style attributes as classes, and the page's style sheet with their rules."""
    classes: dict[str, str] = {}

    def named(tag: re.Match[str]) -> str:
        return re.sub(
            r' style="([^"]*)"',
            lambda own: f' class="{classes.setdefault(unescape(own[1]), f"s{len(classes)}")}"',
            tag[0],
        )

    body = re.sub(r"<[^>]+>", named, body)
    return body, STYLE + "".join(f".{name}{{{rule}}}\n" for rule, name in classes.items())


def security_policy(style: str) -> str:
    """Nothing is loaded and nothing runs; the one style sheet is told by its digest."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
