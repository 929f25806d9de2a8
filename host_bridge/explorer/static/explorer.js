// What a script adds to pages that work without one.

import { enhance } from "./enhance.js";
import { keepCurrent } from "./live.js";

const main = document.querySelector("main[data-live]");
const given = main?.innerHTML; // as the server gave it, before anything is added
enhance(document);
if (main !== null) keepCurrent(main, given);
