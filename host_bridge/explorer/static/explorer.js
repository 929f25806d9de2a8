// What a script adds to pages that work without one.

import { enhance } from "./enhance.js";
import { keepCurrent } from "./live.js";

enhance(document);
const main = document.querySelector("main[data-live]");
if (main !== null) keepCurrent(main);
