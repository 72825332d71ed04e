"""What a page does besides being read: tables are sorted, and long ones unfold.

Without it the page is whole, its tables in the order in which they were written. It only moves rows
and sets classes and attributes: no text becomes markup.
"""

from __future__ import annotations

import base64
import hashlib

# Rows that a long table shows at first.
FOLDED_ROWS = 20

SCRIPT = (
    """
"use strict";
const FOLDED = """
    + str(FOLDED_ROWS)
    + """;
function fold(table) {
  const folded = table.dataset.folded === "yes";
  [...table.tBodies[0].rows].forEach((row, i) => { row.hidden = folded && i >= FOLDED; });
}
function sort(table, head) {
  const column = head.cellIndex;
  const up = head.getAttribute("aria-sort") !== "ascending";
  const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent;
  const numeric = head.classList.contains("number");
  const compare = (a, b) => {
    if (!numeric) return key(a).localeCompare(key(b), "en", { numeric: true });
    return Number(key(a)) - Number(key(b));
  };
  const rows = [...table.tBodies[0].rows].sort((a, b) => (up ? 1 : -1) * compare(a, b));
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  table.tBodies[0].append(...rows);
  fold(table);
}
for (const table of document.querySelectorAll("table.sortable")) {
  for (const head of table.tHead.rows[0].cells) {
    head.querySelector("button").addEventListener("click", () => sort(table, head));
  }
  const more = table.parentElement.querySelector("button.more");
  if (more === null) continue;
  const words = () => {
    const folded = table.dataset.folded === "yes";
    more.textContent = folded ? more.dataset.all : more.dataset.fewer;
    more.setAttribute("aria-expanded", String(!folded));
    fold(table);
  };
  table.dataset.folded = "yes";
  more.hidden = false;
  more.addEventListener("click", () => {
    table.dataset.folded = table.dataset.folded === "yes" ? "no" : "yes";
    words();
  });
  words();
}
"""
)


def script_digest() -> str:
    """What a Content-Security-Policy calls the script, so that no other one runs."""
    digest = hashlib.sha256(SCRIPT.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
