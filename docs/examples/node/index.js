// SPDX-License-Identifier: Apache-2.0
// Reads the digits on images of 8 x 8 numbers from 0 to 16: node index.js < ../models/seven.txt
const { readFileSync } = require("fs");
const { probabilities } = require("./digits.node");

async function digits(images) {
  const found = await probabilities(Float32Array.from(images));
  const rows = Array.from({ length: found.length / 10 }, (_, k) => found.subarray(10 * k, 10 * k + 10));
  return rows.map((row) => row.indexOf(Math.max(...row)));
}

module.exports = { digits, probabilities };

if (require.main === module) {
  const numbers = readFileSync(0, "utf8").split(/\s+/).filter(Boolean).map(Number);
  digits(numbers).then((found) => found.forEach((digit) => console.log(digit)));
}
