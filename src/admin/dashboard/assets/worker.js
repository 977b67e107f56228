// The shared worker of all pages of a browser.

import { share } from "./notices.js";

share(self);
