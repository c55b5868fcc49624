// What the pointer is at, in a few lines of text beside it.

function lines(title, pairs) {
  return [make("b", {}, title), ...pairs.filter(Boolean).map(([what, value]) =>
    make("div", {}, make("span", {}, what), make("span", {}, value)))];
}

function tip(x, y, title, pairs) {
  const box = document.getElementById("tip");
  box.replaceChildren(...lines(title, pairs));
  box.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = box;
  const left = x + 14 + width > innerWidth ? x - width - 10 : x + 14;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - height - 4))}px`;
}

function noTip() {
  document.getElementById("tip").hidden = true;
}
