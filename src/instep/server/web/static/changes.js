// Enhances the screens of changes, reviews and lineage.
function count(form) {
  const shown = form.querySelector("#selected-count");
  if (shown) shown.textContent = `(${form.querySelectorAll("input[name=ids]:checked").length})`;
}

document.addEventListener("change", (event) => {
  const box = event.target;
  if (!(box instanceof HTMLInputElement) || !box.form) return;
  if (box.matches("[data-all]")) {
    for (const one of box.form.querySelectorAll("input[name=ids]")) one.checked = box.checked;
  }
  if (box.matches("[data-all], input[name=ids]")) {
    const selected = box.form.querySelector("input[name=scope][value=selected]");
    if (selected) selected.checked = true;
    count(box.form);
  }
});
