// A drawing as letters for a URL: the steps between its points, rounded to pixels, as numbers of five bits per letter,
// low bits first; the sixth bit says that more follow. The low bits of a number are the pen (of x) and the sign.

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const FARTHEST = 1e6; // pixels from the corner of the pad

const folded = (step) => (step < 0 ? -2 * step - 1 : 2 * step);
const unfolded = (number) => (number % 2 ? -(number + 1) / 2 : number / 2);

function letters(number) {
  let made = "";
  for (; number > 31; number = Math.floor(number / 32)) made += LETTERS[32 + number % 32];
  return made + LETTERS[number];
}

export function encoded(points) {
  let x = 0, y = 0, made = "";
  for (const point of points) {
    const [right, down] = [Math.round(point.x), Math.round(point.y)];
    made += letters(2 * folded(right - x) + point.up) + letters(folded(down - y));
    [x, y] = [right, down];
  }
  return made;
}

// The points, or null if `code` is not that of a drawing of at most `most` points.
export function decoded(code, most) {
  const numbers = [];
  let number = 0, scale = 1;
  for (const letter of code) {
    const value = LETTERS.indexOf(letter);
    if (value < 0) return null;
    number += value % 32 * scale;
    scale *= 32;
    if (number > 4 * FARTHEST || scale > FARTHEST ** 2) return null;
    if (value > 31) continue;
    numbers.push(number);
    number = 0;
    scale = 1;
  }
  if (scale > 1 || numbers.length % 2 || numbers.length > 2 * most) return null;
  const points = [];
  let x = 0, y = 0;
  for (let i = 0; i < numbers.length; i += 2) {
    x += unfolded(Math.floor(numbers[i] / 2));
    y += unfolded(numbers[i + 1]);
    if (Math.max(Math.abs(x), Math.abs(y)) > FARTHEST) return null;
    points.push({ x, y, up: numbers[i] % 2 });
  }
  return points;
}
