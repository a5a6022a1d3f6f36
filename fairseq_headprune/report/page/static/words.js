// Marks the words of a translation that the other one does not share: longest common subsequence.

function markedWords(text, other) {
  const mine = text.split(" "), theirs = other.split(" ");
  const common = Array.from({ length: mine.length + 1 }, () => new Array(theirs.length + 1).fill(0));
  for (let i = mine.length - 1; i >= 0; i -= 1) {
    for (let j = theirs.length - 1; j >= 0; j -= 1) {
      common[i][j] = mine[i] === theirs[j] ? 1 + common[i + 1][j + 1] : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const parts = [];
  for (let i = 0, j = 0; i < mine.length;) {
    if (j < theirs.length && mine[i] === theirs[j]) {
      parts.push(mine[i], " ");
      i += 1;
      j += 1;
    } else if (j < theirs.length && common[i][j + 1] > common[i + 1][j]) {
      j += 1;
    } else {
      parts.push(html("mark", {}, mine[i]), " ");
      i += 1;
    }
  }
  return html("span", {}, parts.slice(0, -1));
}
