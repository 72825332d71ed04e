"""The look of a report page: one style sheet, light and dark, from narrow to wide."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --card: #f6f7f9; --ink: #1c2128; --soft: #5b6470; --rule: #dde1e6;
  --baseline: #9db4d0; --sharded: #c2410c; --other: #6b7280;
  --link: #1d4ed8; --good: #14683a; --good-paper: #dcf3e4; --bad: #9b1c1c; --bad-paper: #fde2e2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171c; --card: #1d2128; --ink: #e6e9ee; --soft: #9aa4b2; --rule: #323842;
    --baseline: #54739c; --sharded: #ff9d5c; --other: #8b95a3;
    --link: #8ab4ff; --good: #7ee2a8; --good-paper: #143324; --bad: #ffa3a3; --bad-paper: #451d1d;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 1120px; padding: 32px 20px 64px; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere;
}
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 8px; }
h2 { font-size: 22px; line-height: 1.25; margin: 48px 0 4px; padding-top: 20px;
     border-top: 1px solid var(--rule); }
h3 { font-size: 16px; margin: 28px 0 8px; }
p { margin: 4px 0 12px; max-width: 72ch; }
.soft, figure p { color: var(--soft); font-size: 14px; }
.verdict { display: inline-block; padding: 3px 12px; border-radius: 6px; font-weight: 600;
           margin: 4px 0 12px; color: var(--good); background: var(--good-paper); }
.verdict.bad { color: var(--bad); background: var(--bad-paper); }
.verdict.plain { color: var(--ink); background: var(--card); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
         margin: 12px 0 20px; }
.tile { background: var(--card); border-radius: 8px; padding: 12px 14px; }
.tile span { display: block; color: var(--soft); font-size: 13px; }
.tile b { display: block; font-size: 20px; line-height: 1.3; }
.figures { display: grid; gap: 16px; margin-top: 16px;
           grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); }
.figures.small { grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr));
                 margin-top: 16px; }
.figures.wide { grid-template-columns: 1fr; }
figure { margin: 0; background: var(--card); border-radius: 8px; padding: 14px 16px 10px;
         min-width: 0; }
figcaption { font-weight: 600; margin-bottom: 8px; }
figure p { margin: 8px 0 4px; font-size: 13px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; font-size: 13px; color: var(--soft);
          margin-bottom: 10px; }
.legend i { display: inline-block; width: 22px; margin-right: 7px; vertical-align: middle;
            border-top: 2px solid var(--other); }
.legend i.baseline { border-top: 7px solid var(--baseline); }
.legend i.sharded { border-top-color: var(--sharded); }
.plot { display: grid; grid-template-columns: 46px 1fr; height: 230px; }
.plot svg { width: 100%; height: 230px; overflow: visible; }
.plot .y { position: relative; font-size: 12px; color: var(--soft); }
.plot .y span { position: absolute; right: 8px; transform: translateY(-50%); }
.x { display: flex; justify-content: space-between; margin: 5px 0 0 46px; font-size: 12px;
     color: var(--soft); }
polyline { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke;
           stroke-linejoin: round; stroke-linecap: round; stroke: var(--other); }
polyline.baseline { stroke: var(--baseline); stroke-width: 7; }
polyline.sharded { stroke: var(--sharded); }
.ticks, .x-label { margin-left: 58px; font-size: 12px; color: var(--soft); }
.ticks { position: relative; height: 20px; margin-right: 10px; }
.ticks span { white-space: nowrap; position: absolute; top: 4px; transform: translateX(-50%); }
.x-label { text-align: center; }
.plot:has(.readings) { grid-template-columns: 58px 1fr 10px; position: relative; }
.readings { position: absolute; inset: 0 10px 0 58px; }
.reading { position: absolute; top: 0; bottom: 0; width: 9.4%; transform: translateX(-50%); }
.reading::before { content: ""; position: absolute; inset: 0 50%; opacity: 0;
                   border-left: 1px solid; }
.reading:hover::before, .reading:focus::before { opacity: .5; }
.reading:focus-visible { outline: 2px solid var(--link); border-radius: 4px; }
.tip { position: absolute; top: 6px; z-index: 1; padding: 8px 12px; border-radius: 8px;
       background: var(--paper); border: 1px solid var(--rule); font-size: 13px; display: none;
       width: max-content; box-shadow: 0 4px 14px rgb(0 0 0 / 16%); }
.after .tip { left: calc(50% + 8px); }
.before .tip { right: calc(50% + 8px); }
.reading:hover .tip, .reading:focus .tip { display: block; }
.tip strong { display: block; margin-bottom: 2px; }
.tip span { display: grid; grid-template-columns: 22px 1fr auto; align-items: center; gap: 8px; }
.tip i { border-top: 2px solid var(--other); }
.tip i.baseline { border-top: 7px solid var(--baseline); }
.tip i.sharded { border-top-color: var(--sharded); }
.tip b { font-variant-numeric: tabular-nums; text-align: right; }
.grid line { stroke: var(--rule); stroke-width: 1; vector-effect: non-scaling-stroke; }
.bar { display: grid; grid-template-columns: 84px 1fr 72px; gap: 10px; align-items: center;
       font-size: 14px; margin: 7px 0; }
.bar .track { display: block; height: 20px; }
.bar i { display: block; height: 100%; min-width: 2px; border-radius: 0 3px 3px 0;
         background: var(--other); }
.bar i.baseline { background: var(--baseline); }
.bar i.sharded { background: var(--sharded); }
.bar b { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.gantt { display: grid; grid-template-columns: 84px 1fr; }
.gantt .lanes span { display: block; height: 22px; margin-bottom: 6px; font-size: 13px;
                     line-height: 22px; white-space: nowrap; }
.gantt svg { width: 100%; }
.gantt-x { margin-left: 84px; }
rect.work { fill: var(--baseline); }
rect.delay { fill: var(--sharded); }
rect.wait { fill: var(--rule); }
.gantt-legend i.work { border-top: 12px solid var(--baseline); }
.gantt-legend i.delay { border-top: 12px solid var(--sharded); }
.gantt-legend i.wait { border-top: 12px solid var(--rule); }
table { border-collapse: collapse; margin: 0 0 12px; font-size: 14px; width: 100%; }
th { text-align: left; font-weight: 600; color: var(--soft); }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td { font-variant-numeric: tabular-nums; }
td { overflow-wrap: anywhere; }
td > span { overflow: clip; display: block; }
th { white-space: nowrap; }
th.number, td.number { text-align: right; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
th button { all: unset; cursor: pointer; display: inline-block; min-height: 24px; }
th button::after { content: "\\2195"; margin-left: 5px; opacity: .55; }
th[aria-sort="ascending"] button::after { content: "\\2191"; opacity: 1; }
th[aria-sort="descending"] button::after { content: "\\2193"; opacity: 1; }
th[aria-sort$="ending"] button, th button:hover { color: var(--ink); }
button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; border-radius: 3px; }
button.more { font: inherit; font-size: 14px; color: var(--link); background: var(--card);
              border: 1px solid var(--rule); border-radius: 6px; padding: 5px 14px;
              cursor: pointer; margin-bottom: 12px; }
button.more:hover { border-color: var(--link); }
pre { background: var(--card); border-radius: 8px; padding: 12px 14px; margin: 0 0 12px;
      white-space: pre-wrap; font: 12px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
pre ins { color: var(--good); background: var(--good-paper); text-decoration: none; }
pre del { color: var(--bad); background: var(--bad-paper); text-decoration: none; }
@media (min-width: 641px) {
  td > span { min-width: 64px; }
  td:first-child:not(.number) > span { min-width: 180px; }
}
@media (max-width: 640px) {
  body { padding: 24px 16px 48px; }
  h1 { font-size: 24px; }
  .ticks span:nth-child(odd) { display: none; }
  .reading .tip { width: 232px; left: calc(50% - var(--at) * 232px); right: auto; }
  .tip span { grid-template-columns: 22px 1fr; gap: 0 8px; }
  .tip b { grid-column: 2; text-align: left; }
  table, thead, tbody, tr, th, td { display: block; }
  table:not(.sortable) thead { display: none; }
  thead tr { display: flex; flex-wrap: wrap; gap: 4px 16px; padding-top: 0; }
  thead tr::before { content: "Sort by"; color: var(--soft); padding: 3px 0; }
  thead th, th.number { border: 0; padding: 0; text-align: left; }
  tr { border-bottom: 1px solid var(--rule); padding: 8px 0; }
  tr[hidden] { display: none; }
  td, td.number { border: 0; padding: 1px 0; display: grid; grid-template-columns: 112px 1fr;
       gap: 12px; text-align: left; white-space: normal; }
  td:not(:first-child) { overflow-wrap: anywhere; }
  td:first-child, td.number:first-child { display: block; font-weight: 600; }
  .compact tbody tr { display: grid; grid-template-columns: 1fr 1fr; gap: 0 12px; }
  .compact tbody tr[hidden] { display: none; }
  .compact td:first-child { grid-column: 1 / 3; }
  .compact td, .compact td.number { grid-template-columns: auto 1fr; gap: 8px; font-size: 13px; }
  .compact td:first-child { font-size: 14px; }
  .compact td.number:first-child::before { content: attr(data-column) " "; }
  td:not(:first-child)::before { content: attr(data-column); color: var(--soft); }
}
"""


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
