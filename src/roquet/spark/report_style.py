"""The style of report pages: light and dark, on a phone, on paper.

Every rule is below ``.roquet-report``, so that a report in a notebook changes nothing around it.
Dark colours follow the system, or the theme of JupyterLab and VS Code where a notebook has one.
"""

from __future__ import annotations

__all__ = ["PAGE_STYLE", "STYLE"]

_LIGHT = """
--paper:#fff;--panel:#f6f7f9;--ink:#1c2127;--soft:#5a6470;--rule:#dde1e6;--track:#eceff2;
--bad:#b42318;--good:#1a7f4b;--s0:#2a6fdb;--s1:#159a6c;--s2:#e08a00;--s3:#7a4fd0;--s4:#d64545;
--s5:#0e8fb0;--s6:#c24d94;--s7:#8a929c;color-scheme:light;
"""
_DARK = """
--paper:#14181d;--panel:#1c2229;--ink:#e6e9ed;--soft:#a3adb8;--rule:#333b45;--track:#262d36;
--bad:#ff7b6e;--good:#58c98d;--s0:#5b9bff;--s1:#3fc795;--s2:#f4b04a;--s3:#a98bf5;--s4:#ff7f7f;
--s5:#4cc3e0;--s6:#ec86c0;--s7:#8d97a3;color-scheme:dark;
"""
_COLORS = "".join(f".roquet-report .s{at}{{fill:var(--s{at})}}" for at in range(8))

STYLE = f"""
.roquet-report{{{_LIGHT}}}
@media screen and (prefers-color-scheme:dark){{.roquet-report{{{_DARK}}}}}
@media screen{{
[data-jp-theme-light="true"] .roquet-report,.vscode-light .roquet-report{{{_LIGHT}}}
[data-jp-theme-light="false"] .roquet-report,.vscode-dark .roquet-report{{{_DARK}}}
}}
.roquet-report{{background:var(--paper);color:var(--ink);
font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
max-width:70rem;margin:0 auto;padding:1rem;box-sizing:border-box}}
.roquet-report h1{{font-size:1.5rem;margin:0 0 .2rem;overflow-wrap:anywhere}}
.roquet-report h2{{font-size:1.1rem;margin:1.8rem 0 .6rem}}
.roquet-report p{{margin:.2rem 0;color:var(--soft);overflow-wrap:anywhere}}
.roquet-report .state{{font-weight:600}}
.roquet-report .good{{color:var(--good)}}
.roquet-report .bad{{color:var(--bad);fill:var(--bad)}}
.roquet-report dl{{display:grid;gap:.6rem;margin:1rem 0 0;
grid-template-columns:repeat(auto-fill,minmax(min(100%,9.5rem),1fr))}}
.roquet-report dl div{{background:var(--panel);border-radius:6px;padding:.5rem .7rem}}
.roquet-report dt{{font-size:.8rem;color:var(--soft)}}
.roquet-report dd{{margin:0;font-size:1.15rem;font-weight:600;overflow-wrap:anywhere}}
.roquet-report dd.long{{font-size:.9rem}}
.roquet-report .charts{{display:grid;gap:1rem;margin-top:1.2rem;
grid-template-columns:repeat(auto-fill,minmax(min(100%,23rem),1fr))}}
.roquet-report figure{{margin:0;background:var(--panel);border-radius:6px;padding:.8rem;
min-width:0;break-inside:avoid}}
.roquet-report figcaption{{font-weight:600;margin-bottom:.5rem}}
.roquet-report figcaption small{{font-weight:400;color:var(--soft)}}
.roquet-report figure svg{{display:block;width:100%;max-width:34rem;height:auto}}
.roquet-report text{{font-size:13px;fill:var(--ink)}}
.roquet-report .value{{fill:var(--soft)}}
.roquet-report .tick{{font-size:11px;fill:var(--soft)}}
.roquet-report .mid{{text-anchor:middle}}
.roquet-report .end{{text-anchor:end}}
.roquet-report .grid{{stroke:var(--rule);stroke-width:1}}
.roquet-report .track{{fill:var(--track)}}
.roquet-report .span{{stroke:var(--s7);stroke-width:2}}
.roquet-report .ring{{fill:var(--panel);stroke:var(--s4);stroke-width:2}}
.roquet-report .line{{fill:none;stroke:var(--s0);stroke-width:2.5}}
.roquet-report .area{{fill:var(--s0);opacity:.18}}
.roquet-report .limit{{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:5 4}}
{_COLORS}
.roquet-report figure ul{{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem .9rem;
margin:.5rem 0 0;padding:0;font-size:.85rem;color:var(--soft)}}
.roquet-report figure li{{display:flex;align-items:center;gap:.35rem;margin:0;
overflow-wrap:anywhere}}
.roquet-report figure li svg{{width:.7rem;height:.7rem;flex:none}}
.roquet-report .scroll{{overflow-x:auto}}
.roquet-report.roquet-report table{{border-collapse:collapse;width:100%;font-size:.9rem;margin:0;
color:var(--ink);table-layout:auto}}
.roquet-report.roquet-report tbody tr{{background:none}}
.roquet-report.roquet-report th,.roquet-report.roquet-report td{{text-align:left;
padding:.3rem .8rem .3rem 0;border:0;border-bottom:1px solid var(--rule);vertical-align:top;
white-space:normal;max-width:32rem;overflow-wrap:break-word}}
.roquet-report.roquet-report th{{color:var(--soft);font-weight:600;vertical-align:bottom}}
.roquet-report.roquet-report .number{{text-align:right;
font-variant-numeric:tabular-nums}}
.roquet-report.roquet-report td.number{{white-space:nowrap}}
.roquet-report footer{{margin-top:2rem;font-size:.8rem;color:var(--soft)}}
@media print{{
.roquet-report{{padding:0;max-width:none;font-size:11px}}
.roquet-report figure,.roquet-report dl div{{border:1px solid var(--rule)}}
.roquet-report .charts{{grid-template-columns:1fr 1fr}}
.roquet-report .scroll{{overflow:visible}}
.roquet-report tr{{break-inside:avoid}}
.roquet-report h2{{break-after:avoid}}
}}
"""

PAGE_STYLE = f"""
html{{background:#fff}}
@media screen and (prefers-color-scheme:dark){{html{{background:#14181d}}}}
body{{margin:0}}
@page{{margin:14mm}}
{STYLE}"""
