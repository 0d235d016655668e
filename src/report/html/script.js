"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const descending = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const key = (row) => {
      const cell = row.cells[column];
      return cell.dataset.sort === undefined ? cell.textContent : Number(cell.dataset.sort);
    };
    const rows = [...body.rows].sort((a, b) => {
      const [left, right] = [key(a), key(b)];
      const numbers = typeof left === "number" && typeof right === "number";
      return numbers ? left - right : String(left).localeCompare(String(right));
    });
    if (descending) rows.reverse();
    body.append(...rows);
  }));
  const filter = table.closest("section").querySelector(".filter");
  if (filter) {
    filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of body.rows) {
        const text = [...row.cells].map((cell) => `${cell.textContent} ${cell.title}`).join(" ").toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
  }
}
