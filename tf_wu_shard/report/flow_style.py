"""The look of a flow chart's lines and edges; colours are the page's (page_style.py)."""

from __future__ import annotations

WIDE_FLOW_STYLE = """
.flow .steps { position: relative; --line: 30px; --scale: 1px;
               --gutter: calc(var(--width) * var(--scale)); }
.flow svg { position: absolute; left: 0; top: 0; width: var(--gutter); height: 100%;
            overflow: visible; z-index: 1; }
.flow path { fill: none; stroke: var(--other); stroke-width: 1.5; opacity: .75;
             vector-effect: non-scaling-stroke; }
.flow path.stored { stroke-dasharray: 3 3; }
.flow ol { list-style: none; margin: 0; padding: 0; }
.flow li { --x: calc(var(--at) * var(--scale));
           position: relative; height: var(--line); padding: 0 10px 0 calc(var(--gutter) + 8px);
           display: grid; gap: 8px;
           grid-template-columns: fit-content(48%) minmax(0, 1fr) fit-content(36%) 60px;
           align-items: center; font-size: 13px; white-space: nowrap; }
.flow li::before { content: ""; position: absolute; left: calc(var(--x) - 4px); z-index: 2;
                   top: calc(50% - 4px); width: 8px; height: 8px; border-radius: 50%;
                   background: var(--other); }
.flow li b { font-weight: 500; }
.flow li > * { min-width: 0; overflow: hidden; text-overflow: ellipsis; }
.flow li span { color: var(--soft); font-size: 12px; }
.flow li i, .flow li em { font-style: normal; color: var(--soft); }
.flow li em { font-variant-numeric: tabular-nums; text-align: right; }
.flow li.inside { background: var(--paper); }
.flow li:not(.inside) + li.inside { border-radius: 8px 8px 0 0; }
.flow li.inside:has(+ li:not(.inside)) { border-radius: 0 0 8px 8px; }
.flow li.heading::before { display: none; }
.flow li.heading { align-items: end; padding-bottom: 3px; }
.flow li.heading b { font-weight: 600; }
.flow li.heading span, .flow li.heading em { display: none; }
.flow li.heading i { grid-column: 3 / 5; font-size: 12px; }
.flow li.value b, .flow li.exchange b { font-weight: 600; font-size: 14px; }
.flow .value i, .flow .exchange i,
.flow .value em, .flow .exchange em { color: var(--ink); }
.flow li.exchange::before { left: calc(var(--x) - 6px); top: calc(50% - 6px); width: 12px;
                            height: 12px; border-radius: 3px; background: var(--sharded); }
.flow li.value::before { left: calc(var(--x) - 5px); top: calc(50% - 5px); width: 10px;
                         height: 10px; background: var(--ink); }
.flow li.write::before { background: var(--ink); }
"""

FLOW_STYLE = (
    WIDE_FLOW_STYLE
    + """@media (max-width: 640px) {
  .flow .steps { --line: 46px; --scale: .75px; }
  .flow li { grid-template: auto auto / minmax(0, 1fr) fit-content(60%); gap: 0 8px;
             padding-right: 8px; align-content: center; }
  .flow li b { grid-area: 1 / 1; }
  .flow li em { grid-area: 1 / 2; }
  .flow li span { grid-area: 2 / 1; }
  .flow li i { grid-area: 2 / 2; font-size: 12px; }
  .flow li.heading { align-content: end; }
  .flow li.heading i { grid-area: 1 / 2; }
  figure { padding: 12px 10px 8px; }
}
"""
)
