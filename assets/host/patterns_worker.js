/* Tests patterns one after the other; patterns.js terminates it when one takes too long. */
"use strict";
addEventListener("message", ({ data: { turn, asked } }) => {
  postMessage({ turn });
  for (const [pattern, text] of asked) postMessage({ turn, fits: new RegExp(pattern, "u").test(text) });
});
